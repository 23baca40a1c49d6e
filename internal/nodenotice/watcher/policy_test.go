package watcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

func TestTheAgentMayMarkItsNodeAndNothingElse(t *testing.T) {
	install(t)
	own, other := newNode(t), newNode(t)
	agent := agentClient(t, own.Name)
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
		}
	}
	annotate := func(key, value string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Annotations[key] = value }
	}
	const (
		annotations = "may change no annotations but training.dcnlab.com/preemption-notice"
		taints      = "may change no taint but training.dcnlab.com/preemption"
		else_       = "may change nothing of its node but the mark"
	)
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		says   string
	}{
		"another annotation":   {annotate("theirs", "2"), annotations},
		"a new annotation":     {annotate("mine", "1"), annotations},
		"an annotation less":   {func(node *corev1.Node) { delete(node.Annotations, "theirs") }, annotations},
		"another taint":        {taint("mine", corev1.TaintEffectNoSchedule), taints},
		"a taint that evicts":  {taint(spotv1alpha1.TaintPreemption, corev1.TaintEffectNoExecute), taints},
		"a taint less":         {func(node *corev1.Node) { node.Spec.Taints = nil }, taints},
		"a label":              {func(node *corev1.Node) { node.Labels["zone"] = "b" }, else_},
		"a finalizer less":     {func(node *corev1.Node) { node.Finalizers = nil }, else_},
		"the node is cordoned": {func(node *corev1.Node) { node.Spec.Unschedulable = true }, else_},
		"the node has an owner": {func(node *corev1.Node) {
			node.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: other.Name, UID: other.UID}}
		}, else_},
		"the mark and something": {func(node *corev1.Node) { mark(node); node.Labels["zone"] = "b" }, else_},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, edit(t.Context(), agent, own.Name, test.change), test.says)
		})
	}
	t.Run("another node", func(t *testing.T) {
		err := nodenotice.Mark(t.Context(), agent, other.Name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: time.Now()})
		assert.ErrorContains(t, err, "its token is for "+own.Name+", not for "+other.Name)
	})
	t.Run("what RBAC does not give", func(t *testing.T) {
		assert.True(t, apierrors.IsForbidden(agent.Delete(t.Context(), own)))
		assert.True(t, apierrors.IsForbidden(agent.List(t.Context(), &corev1.NodeList{})))
		assert.True(t, apierrors.IsForbidden(agent.Status().Patch(t.Context(), own, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"nodeInfo":{"machineID":"x"}}}`)))))
	})
	t.Run("others are not limited", func(t *testing.T) {
		require.NoError(t, edit(t.Context(), admin(t), other.Name, func(node *corev1.Node) { node.Labels["zone"] = "b" }))
	})
	require.NoError(t, nodenotice.Mark(t.Context(), agent, own.Name, nodenotice.Notice{Source: nodenotice.MetadataServer, Time: time.Now()}))
	require.NoError(t, nodenotice.Clear(t.Context(), agent, own.Name, nodenotice.MetadataServer))
}

func mark(node *corev1.Node) {
	node.Annotations[spotv1alpha1.AnnotationPreemptionNotice] = "2026-05-04T12:00:00Z"
}
