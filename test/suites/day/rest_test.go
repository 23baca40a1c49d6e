package day

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

// listInterval of the manager of this world.
const listInterval = 30 * time.Second

// TestSpotInstanceVMsAndJobsAtRest has SpotInstanceVMs with an instance each, and for each two of five a
// SpotInstanceJob of two replicas on it. SPOT_DAY=whole: 500 and 200.
func TestSpotInstanceVMsAndJobsAtRest(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	vms, jobs := 25, 10
	if os.Getenv("SPOT_DAY") == "whole" {
		vms, jobs = 500, 200
	}
	w := newWorld(t, 1, fakegce.Options{Latency: fakegce.RealisticLatency(), Zones: zones})
	w.createVMs(vms)
	for n := range vms {
		if n < jobs {
			w.createJob(fmt.Sprintf("job-%03d", n), n, vms, 1000*time.Hour)
			continue
		}
		w.createPod(fmt.Sprintf("vm-%d", n))
	}
	began := time.Now()
	w.startManager()
	t.Cleanup(func() { w.stop() })
	instances := vms + jobs // the second replica of each job
	w.run(2*time.Hour, func() bool { return len(w.google.Instances()) == instances && w.allRun(jobs) })
	require.True(t, w.allRun(jobs), w.describe())
	t.Logf("%d SpotInstanceVMs with %d instances and %d SpotInstanceJobs run, %s after the start, simulated in %s",
		vms, instances, jobs, w.since(), time.Since(began).Round(time.Second))
	// Past the first checkpoints, and well before the next.
	require.Less(t, w.since(), checkpointInterval)
	w.run(checkpointInterval+checkpointInterval/2, func() bool { return false })

	const intervals = 20
	w.google.ForgetCalls()
	written := w.writes.Load()
	w.run(w.since()+intervals*listInterval, func() bool { return false })
	for _, zone := range zones {
		lists := w.google.Calls("compute.instances.list", zone)
		t.Logf("zone %s: %d lists in %d intervals", zone, lists, intervals)
		assert.LessOrEqual(t, lists, intervals+1)
		assert.GreaterOrEqual(t, lists, intervals/2, "lists go on")
	}
	assert.Equal(t, w.google.Calls("compute.instances.list", ""), w.google.Calls("", ""), "nothing else is asked: no instance, no operation")
	assert.Equal(t, written, w.writes.Load(), "and nothing is written")
	assert.Len(t, w.google.Instances(), instances)
}

func (w *world) allRun(jobs int) bool {
	count := 0
	for _, job := range w.jobs() {
		if job.Status.ActiveReplicas == 2 && job.Status.Phase == spotv1alpha1.JobRunning {
			count++
		}
	}
	return count == jobs
}

// createPod makes a pod without a job that wants an instance of a SpotInstanceVM.
func (w *world) createPod(vm string) {
	require.NoError(w.t, w.cluster.client.Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: vm, Namespace: namespace, Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: vm}},
		Spec:       trainingPod(1000 * time.Hour),
	}))
}
