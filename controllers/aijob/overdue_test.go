package aijob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// A kubelet that is gone never says that a pod has ended, and nothing else does while the node's object stays.
func TestPodsThatNobodyEndsDoNotHoldThePlaceForEver(t *testing.T) {
	const graceEnds = 31 * time.Second // of a pod that is deleted a second after noon
	cancelled := job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](0) })
	for name, test := range map[string]struct {
		job           *builders.AIJobBuilder
		cancel        bool
		phase, freely string
		steps         string
	}{
		"queued again":           {job: job(), phase: "Queued", freely: "Scheduled"},
		"cancelled with TTL":     {job: cancelled, cancel: true, phase: "Cancelled", freely: "Cancelled", steps: "delete the job"},
		"a gang, whose names go": {job: gang(), phase: "Queued", freely: "Scheduled", steps: "force train-0-0, force train-1-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(test.job)
			w.running([]string{"a", "b"}[:membersOf(w.job)]...)
			if test.cancel {
				w.job.Spec.Cancel = ptr.To(true)
			} else {
				disrupt(w.pods[0], "DeletionByTaintManager").Status.Phase = corev1.PodRunning
			}
			for _, pod := range w.pods {
				deleted(pod, time.Second)
			}
			w.job.Status = plan(w.at(time.Second).observed).status
			assert.Equal(t, test.phase, string(w.job.Status.Phase))

			d := plan(w.at(graceEnds + 14*time.Second).observed)
			assert.Empty(t, steps(d))
			assert.Equal(t, w.job.Status.Assignments, d.status.Assignments, "they may still end by themselves")
			assert.Equal(t, time.Second, d.again)

			d = plan(w.at(graceEnds + 15*time.Second).observed)
			assert.Empty(t, d.status.Assignments, "its place is free")
			w.job.Status = d.status
			assert.Equal(t, test.steps, steps(plan(w.observed)))

			w.admitted([]string{"c", "d"}[:membersOf(w.job)]...)
			assert.Equal(t, test.freely, string(plan(w.observed).status.Phase))
		})
	}
}

func TestPodsAreForcedAwayOnce(t *testing.T) {
	w := worldOf(gang()).running("a", "b")
	deleted(w.pods[0], 0).DeletionGracePeriodSeconds = ptr.To[int64](0) // it is, and a finalizer keeps the object
	w.job.Status = plan(w.observed).status
	w.pods = w.pods[:1]
	w.job.Status = plan(w.at(time.Hour).observed).status
	assert.Empty(t, steps(plan(w.observed)))
}

// An AIJob that is created again finds the pods of the one before it, whose node may be dead.
func TestAGangWaitsForThePodsOfAnEarlierJobOfItsName(t *testing.T) {
	w := worldOf(gang()).scheduled("a", "b")
	former := deleted(w.pod(1, "c", corev1.PodRunning), 0)
	w.pods, w.former = nil, []*corev1.Pod{former}
	overdue := former.DeletionTimestamp.Add(podend.Overdue).Sub(builders.Noon)

	early := plan(w.at(overdue - time.Second).observed)
	assert.Empty(t, early.members)
	assert.Equal(t, time.Second, early.again)

	d := plan(w.at(overdue).observed)
	assert.Equal(t, []*corev1.Pod{former}, d.force)
	assert.Len(t, d.members, 2)

	single := worldOf(job()).scheduled("a")
	single.former = []*corev1.Pod{former}
	early = plan(single.at(overdue - time.Second).observed)
	assert.Len(t, early.members, 1, "it has no host name")
	assert.Empty(t, early.force)
	assert.Equal(t, []*corev1.Pod{former}, plan(single.at(overdue).observed).force, "it may have the name of the pod")
}
