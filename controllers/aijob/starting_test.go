package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestPodsThatCannotBeMadeGiveThePlaceBack(t *testing.T) {
	for name, some := range map[string]bool{"none of them": false, "one of them": true} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(gang()).scheduled("a", "b")
			if some {
				w.pod(0, "a", corev1.PodRunning)
			}
			d := plan(w.observed)
			assert.Equal(t, time.Minute, d.again, "then they are looked for where the cache does not see")

			d = plan(w.at(30*time.Minute - time.Millisecond).observed)
			assert.Equal(t, "Scheduled AdmittedByQueue", short(d.status))
			assert.Contains(t, steps(d), "create 1 on b")
			assert.Equal(t, time.Millisecond, d.again)

			d = plan(w.at(30 * time.Minute).observed)
			assert.Equal(t, "Retrying PodsNotStarted", short(d.status))
			assert.Contains(t, d.status.Message, "not all pods could be created within 30m0s")
			assert.Equal(t, int32(1), d.status.PreemptionCount)
		})
	}
}

func TestWhatKeepsAPodFromStartingIsToldAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		waiting, detail string
		reason, message string
	}{
		"its image cannot be pulled": {
			"ErrImagePull", "not found",
			"ImagePullFailed",
			"pod infer-0-0 on node a cannot pull image registry.example.com/infer:1: not found; use another spec.image in a new AIJob, " +
				"or add the registry's imagePullSecret to the ServiceAccount; the attempt fails if that is so at 12:05:00Z",
		},
		"it lacks a Secret": {
			"CreateContainerConfigError", `secret "x" not found`,
			"ContainerConfigError",
			`pod infer-0-0 on node a lacks what its container needs: secret "x" not found; it starts once that exists; the job fails if that is so at 12:02:00Z`,
		},
		"its container cannot be made": {
			"CreateContainerError", "name is reserved",
			"ContainerStartFailed",
			"pod infer-0-0 on node a cannot start its container: name is reserved; the attempt fails if that is so at 12:02:00Z",
		},
		"a secret in what the kubelet says": {
			"ErrImagePull", "login with password=hunter22 failed",
			"ImagePullFailed", "password=***",
		},
		"nothing is wrong yet": {"ContainerCreating", "", "AdmittedByQueue", "the pod is being started on node a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(job()).scheduled("a")
			pod := hung(w.pod(0, "a", corev1.PodPending), test.waiting, test.detail)
			before := w.job.DeepCopy()

			d := plan(w.at(3 * time.Second).observed)
			assert.Equal(t, "Scheduled "+test.reason, short(d.status))
			assert.Contains(t, d.status.Message, test.message)
			assert.Equal(t, conditions(before.Status), conditions(d.status), "it has its place all the same")
			w.job.Status = d.status
			assert.Equal(t, d.status, plan(w.observed).status, "once")
			event := eventOf(before, &d.status)
			if test.reason == "AdmittedByQueue" {
				assert.Nil(t, event)
			} else {
				assert.Equal(t, test.reason, event.Reason)
				assert.Equal(t, d.status.Message, event.Note)
			}

			// Then it is fixed, and the kubelet tries again.
			told := w.job.DeepCopy()
			hung(pod, "ContainerCreating", "")
			d = plan(w.at(20 * time.Second).observed)
			assert.Equal(t, "Scheduled AdmittedByQueue", short(d.status))
			assert.Equal(t, "the pod is being started on node a", d.status.Message)
			event = eventOf(told, &d.status)
			assert.Nil(t, event)
		})
	}
}

func TestTheMemberOfAGangThatCannotStartIsNamed(t *testing.T) {
	w := worldOf(gang()).scheduled("a", "b")
	w.pod(0, "a", corev1.PodRunning)
	second := hung(w.pod(1, "b", corev1.PodPending), "ErrImagePull", "not found")
	d := plan(w.observed)
	assert.Equal(t, "Scheduled ImagePullFailed", short(d.status))
	assert.Contains(t, d.status.Message, "pod train-1-0 on node b")
	w.job.Status = d.status
	hung(second, "ContainerCreating", "")
	w.job.Status = plan(w.observed).status
	assert.Equal(t, "2 pods are being started together on 2 nodes", w.job.Status.Message)
	second.Status.Phase = corev1.PodRunning
	assert.Equal(t, "Running Running", short(plan(w.observed).status))
}
