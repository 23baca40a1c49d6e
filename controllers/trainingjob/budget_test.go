package trainingjob

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/budget"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestBudgetOfALife(t *testing.T) {
	c, traffic := newExclusiveCluster(t), &budget.Traffic{}
	c.wrap, c.everywhere = []transport.WrapperFunc{traffic.Wrap}, true
	m := c.start(nil)

	// A first job opens all watches.
	c.live(builders.TrainingJob("first").Workers(1), func(*mlv1.TrainingJob) {})
	budget.Check(t, "trainingjob.watches", float64(traffic.Watches.Load()))

	requests, bytes := traffic.Requests.Load(), traffic.Bytes.Load()
	c.live(builders.TrainingJob("bert").Workers(4), func(job *mlv1.TrainingJob) {
		request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)}
		objects, allocated := budget.Allocations(100, func() {
			_, err := m.reconciler.Reconcile(t.Context(), request)
			require.NoError(t, err)
		})
		budget.Check(t, "trainingjob.reconcile.allocations", objects)
		budget.Check(t, "trainingjob.reconcile.bytes", allocated)
	})
	budget.Check(t, "trainingjob.requests", float64(traffic.Requests.Load()-requests))
	budget.Check(t, "trainingjob.bytes", float64(traffic.Bytes.Load()-bytes))
}

// live runs a job until it is Completed.
func (c *cluster) live(b *builders.TrainingJobBuilder, whileItRuns func(*mlv1.TrainingJob)) {
	c.t.Helper()
	job := c.submit(b)
	pods := c.startPods(c.workers(job, 0))
	c.run(pods...)
	whileItRuns(c.await(job, "Running", state(mlv1.StateRunning)))
	c.end(0, "", pods...)
	c.await(job, "Completed", state(mlv1.StateCompleted))
}

func TestBudgetOfTheCache(t *testing.T) {
	const many = 2000
	c := newExclusiveCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	pods := c.startPods(c.workers(job, 0))
	c.run(pods...)
	job = c.await(job, "Running", state(mlv1.StateRunning))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pods[0]), pods[0]))

	strip := cache.TransformStripManagedFields()
	budget.Check(t, "trainingjob.cache.job", budget.Heap(func() any {
		var kept []any
		for i := range many {
			next := decoded(t, job, &mlv1.TrainingJob{}, i)
			object, err := strip(next)
			require.NoError(t, err)
			kept = append(kept, object)
		}
		return kept
	})/many)
	budget.Check(t, "trainingjob.cache.pod", budget.Heap(func() any {
		var kept []any
		for i := range many {
			object, err := keepPods.Pods()(decoded(t, pods[0], &corev1.Pod{}, i))
			require.NoError(t, err)
			kept = append(kept, object)
		}
		return kept
	})/many)
}

// decoded is an object of another name as a watch brings it: nothing of it is shared.
func decoded[T client.Object](t *testing.T, from, into T, index int) T {
	t.Helper()
	from.SetName(fmt.Sprintf("%.40s-%d", from.GetName(), index))
	text, err := json.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
	into.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubelet"}})
	return into
}
