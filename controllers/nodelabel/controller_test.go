package nodelabel

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

var (
	scheme = apiserver.Scheme()
	api    = apiserver.New()
)

func TestMain(m *testing.M) { api.Main(m) }

func TestAPIANodeThatGoesIsLabelledUntilItsNoticeIsWithdrawn(t *testing.T) {
	c, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	mgr := managers.New(t, api.Config(t), scheme, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: nodenotice.Trim}}})
	require.NoError(t, (&Reconciler{mgr.GetClient()}).SetupWithManager(mgr))
	mgr.Run()

	taint := corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}
	for name, notice := range map[string]struct{ give, withdraw func(*corev1.Node) error }{
		"the operator's own": {
			func(node *corev1.Node) error {
				return nodenotice.Mark(t.Context(), c, node.Name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: time.Now()})
			},
			func(node *corev1.Node) error {
				return nodenotice.Clear(t.Context(), c, node.Name, nodenotice.MetadataServer)
			},
		},
		"a taint of another program": {
			func(node *corev1.Node) error {
				next := node.DeepCopy()
				next.Spec.Taints = append(next.Spec.Taints, taint)
				return c.Patch(t.Context(), next, client.MergeFrom(node))
			},
			func(node *corev1.Node) error {
				next := node.DeepCopy()
				next.Spec.Taints = nil
				return c.Patch(t.Context(), next, client.MergeFrom(node))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "going-", Labels: map[string]string{"zone": "a"}}}
			require.NoError(t, c.Create(t.Context(), node))
			t.Cleanup(func() { assert.NoError(t, c.Delete(context.Background(), node)) })
			await := func(what string, labels map[string]string) {
				t.Helper()
				apiserver.Await(t, what, func() bool {
					require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(node), node))
					return assert.ObjectsAreEqual(labels, node.Labels)
				})
			}
			require.NoError(t, notice.give(node))
			await("the label", map[string]string{"zone": "a", spotv1alpha1.LabelPreemption: ""})
			require.NoError(t, notice.withdraw(node))
			await("its end", map[string]string{"zone": "a"})
		})
	}
}
