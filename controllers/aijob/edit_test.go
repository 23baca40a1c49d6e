package aijob

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// A place that was found for a spec is not taken for another.
func TestADecisionOnAnEarlierSpecIsNotTaken(t *testing.T) {
	w := worldOf(builders.AIJob("a"))
	w.job.Generation = 2
	w.decided, w.decision = true, queueing.Decision{Admitted: &scheduler.Admission{UID: w.job.UID, Generation: 1, Nodes: []string{"n1"}}}
	d := plan(w.observed)
	assert.Empty(t, d.status.Assignments)
	assert.Equal(t, queueing.StaleDecision, d.again)

	w.decision.Admitted.Generation = 2
	assert.Equal(t, aiplatformv1alpha1.AIJobScheduled, plan(w.observed).status.Phase)
}

// While jobs are admitted one after the other, the resources of those that wait are changed all the time: no pod of one spec is in the place
// of another, and no node has more pods than it can hold.
func TestAPIEditsOfJobsThatWaitAreKept(t *testing.T) {
	const jobs, edits = 12, 150
	c := newCluster(t)
	c.real = true
	c.gpuNode("a", "0") // with 8 CPUs
	c.start(nil)
	cpus := []string{"1", "2", "3", "5", "8"}
	var all []*aiplatformv1alpha1.AIJob
	for n := range jobs {
		all = append(all, c.submit(c.here(builders.AIJob(fmt.Sprintf("edited-%d", n)).Request("cpu", "8"))))
	}
	accepted, done := 0, map[string]bool{}
	check := func() {
		inUse := resource.Quantity{}
		for _, pod := range c.pods() {
			if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
				continue
			}
			inUse.Add(*pod.Spec.Containers[0].Resources.Requests.Cpu())
			job := &aiplatformv1alpha1.AIJob{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: pod.Labels[aiplatformv1alpha1.LabelAIJob]}, job))
			assert.Zero(t, job.Spec.Resources.Requests.Cpu().Cmp(*pod.Spec.Containers[0].Resources.Requests.Cpu()), "%s has the resources of another spec", pod.Name)
		}
		assert.LessOrEqual(t, inUse.Value(), int64(8), "the node holds no more")
	}
	for range edits {
		job := all[rand.IntN(jobs)]
		patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"cpu":%q}}}}`, cpus[rand.IntN(len(cpus))])
		err := c.Patch(t.Context(), job.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
		if err == nil {
			accepted++
		} else {
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, "spec.resources: can be changed only while the job waits or is in DeadLetter")
		}
		c.step()
		check()
		for _, pod := range c.pods() {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !done[pod.Name] && rand.IntN(4) == 0 {
				done[pod.Name] = true
				c.exit(pod.Name, 0, "")
			}
		}
	}
	assert.Greater(t, accepted, 5, "jobs that wait can be edited")
	c.until("all jobs having ended", func() bool {
		check()
		for _, pod := range c.pods() {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				c.exit(pod.Name, 0, "")
			}
		}
		for _, job := range all {
			require.NoError(t, c.Get(t.Context(), keyOf(job), job))
			if job.Status.Phase != aiplatformv1alpha1.AIJobSucceeded {
				return false
			}
		}
		return true
	})
}

// What made a job fail is corrected in the job itself.
func TestAPIAJobInDeadLetterIsCorrectedAndRequeued(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.AIJob("infer").Retries(0, 0))
	c.reachPhase(job, aiplatformv1alpha1.AIJobRunning, 0)
	c.exit("infer-0-0", 1, "no such model")
	c.reachPhase(job, aiplatformv1alpha1.AIJobDeadLetter, 0)
	patch := fmt.Appendf(nil, `{"spec":{"image":"corrected:v2"},"metadata":{"annotations":{%q:"true"}}}`, aiplatformv1alpha1.AnnotationRequeue)
	require.NoError(t, c.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, patch)))
	c.until("the pod of the corrected job", func() bool {
		for _, pod := range c.pods() {
			if pod.Name == "infer-0-1" {
				assert.Equal(t, "corrected:v2", pod.Spec.Containers[0].Image)
				return true
			}
		}
		return false
	})
}
