package runner

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// fleet are the jobs of some namespaces in the service's own store.
type fleet struct {
	*world
	store jobs.Store
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	store, err := engine.New(t.Context(), engine.Options{DataDir: t.TempDir(), TickInterval: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return &fleet{world: newWorld(t), store: store}
}

// flood submits jobs of a namespace to a queue.
func (f *fleet) flood(namespace, queue string, n int) {
	f.t.Helper()
	var batch []*jobs.Job
	for range n {
		batch = append(batch, f.job(func(job *jobs.Job) { job.Namespace, job.Queue = namespace, queue }))
	}
	_, err := f.store.Submit(f.t.Context(), batch)
	require.NoError(f.t, err)
}

// waiting are the AIJobs of a namespace without a phase.
func (f *fleet) waiting(namespace string) []aiplatformv1alpha1.AIJob {
	f.t.Helper()
	var all aiplatformv1alpha1.AIJobList
	require.NoError(f.t, f.cluster.direct.List(f.t.Context(), &all, client.InNamespace(namespace)))
	return slices.DeleteFunc(all.Items, func(aijob aiplatformv1alpha1.AIJob) bool {
		return aijob.Status.Phase != aiplatformv1alpha1.AIJobPending
	})
}

// settlesAt waits until namespaces have so many AIJobs that wait, and sees that no more come.
func (f *fleet) settlesAt(expected map[string]int) {
	f.t.Helper()
	counted := func() map[string]int {
		counts := map[string]int{}
		for namespace := range expected {
			counts[namespace] = len(f.waiting(namespace))
		}
		return counts
	}
	f.eventually("AIJobs", func(c *assert.CollectT) { assert.Equal(c, expected, counted()) })
	stays(func() { require.Equal(f.t, expected, counted()) })
}

// stays looks again and again for a while. Unlike assert.Never it leaves no goroutine behind.
func stays(check func()) {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for end := time.After(1500 * time.Millisecond); ; {
		select {
		case <-look.C:
			check()
		case <-end:
			return
		}
	}
}

func TestNoNamespaceFillsAQueue(t *testing.T) {
	f := newFleet(t)
	greedy, modest, small := f.namespace, f.newNamespace(), f.newNamespace()
	f.flood(greedy, "nightly", 40)
	f.replicaOf(f.store, func(s *Settings) { s.MaxWaiting = 12 })
	f.settlesAt(map[string]int{greedy: 12}) // it is alone

	// A newcomer has a share at once, however long the others wait.
	f.flood(modest, "nightly", 40)
	f.settlesAt(map[string]int{greedy: 12, modest: 6})
	f.flood(small, "nightly", 2)
	f.settlesAt(map[string]int{greedy: 12, modest: 6, small: 2})

	// Who has more than others gets nothing new until it has less.
	start := func(namespace string, n int) {
		for _, aijob := range f.waiting(namespace)[:n] {
			before := aijob.DeepCopy()
			aijob.Status.Phase = aiplatformv1alpha1.AIJobRunning
			require.NoError(t, f.cluster.direct.Status().Patch(t.Context(), &aijob, client.MergeFrom(before)))
		}
	}
	start(greedy, 8)
	f.settlesAt(map[string]int{greedy: 4, modest: 6, small: 2})
	start(greedy, 1)
	start(modest, 3)
	f.settlesAt(map[string]int{greedy: 5, modest: 5, small: 2})
}

func TestNoNamespaceFillsAReplica(t *testing.T) {
	f := newFleet(t)
	greedy, modest := f.namespace, f.newNamespace()
	for _, queue := range []string{"one", "two", "three", "four"} {
		f.flood(greedy, queue, 10)
	}
	f.replicaOf(f.store, func(s *Settings) { s.MaxAIJobs, s.MaxWaiting = 16, 4 })
	f.settlesAt(map[string]int{greedy: 16})
	f.flood(modest, "five", 10)
	f.settlesAt(map[string]int{greedy: 16, modest: 4})
	f.flood(modest, "six", 10)
	f.settlesAt(map[string]int{greedy: 16, modest: 8})
	f.flood(modest, "seven", 10)
	f.settlesAt(map[string]int{greedy: 16, modest: 8})
}
