package queuestatus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

// figures that a test sets.
type clusterFigures struct {
	known    bool
	of       queueing.ClusterFigures
	selector map[string]string // that was asked about
}

func (f *clusterFigures) Cluster(_ string, selector map[string]string) (queueing.ClusterFigures, bool) {
	f.selector = selector
	return f.of, f.known
}
func (f *clusterFigures) Changes(string) source.Source { return nil }

func TestTheStatusIsWrittenSparingly(t *testing.T) {
	t.Parallel()
	api, err := client.NewWithWatch(server.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	writes := 0
	counting := interceptor.NewClient(api, interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
	) error {
		writes++
		return c.SubResource(sub).Patch(ctx, object, patch, options...)
	}})
	cluster := &aiplatformv1alpha1.ComputeCluster{ObjectMeta: metav1.ObjectMeta{Name: "written"}}
	cluster.Spec.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"gpu": "a100"}
	require.NoError(t, api.Create(t.Context(), cluster))
	clock, is := clocktesting.NewFakePassiveClock(noon), &clusterFigures{}
	r := &ClusterReconciler{Client: counting, Clock: clock, Figures: is}
	look := func() (reconcile.Result, *aiplatformv1alpha1.ComputeCluster) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		require.NoError(t, err)
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster))
		return result, cluster
	}

	look()
	assert.Zero(t, writes, "nothing is said before nodes and pods are known")
	is.known, is.of = true, queueing.ClusterFigures{Nodes: 2, Ready: 2, GPUs: 8, FreeGPUs: 8}
	_, now := look()
	assert.Equal(t, aiplatformv1alpha1.ClusterHealthy, now.Status.Health)
	assert.Equal(t, map[string]string{"gpu": "a100"}, is.selector)

	is.of.FreeGPUs = 4
	result, _ := look()
	assert.Equal(t, 3*time.Second, result.RequeueAfter, "figures wait")
	is.of.Ready = 1
	_, now = look()
	assert.Equal(t, aiplatformv1alpha1.ClusterDegraded, now.Status.Health, "health does not")
	assert.EqualValues(t, 4, now.Status.FreeGPUs)
	for range 3 {
		look()
	}
	assert.Equal(t, 2, writes, "at rest nothing is written")
}
