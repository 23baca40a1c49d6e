package spotinstancevm

import (
	"strconv"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// schedule plays the scheduler once: each pod that waits goes to a node of its SpotInstanceVM that has no pod.
func (c *cluster) schedule() {
	c.t.Helper()
	c.replaceLost()
	ctx := c.t.Context()
	var pods corev1.PodList
	require.NoError(c.t, c.List(ctx, &pods, client.InNamespace(c.namespace)))
	taken := map[string]bool{}
	for i := range pods.Items {
		taken[pods.Items[i].Spec.NodeName] = true
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		for _, node := range c.nodes(pod.Labels[spotv1alpha1.LabelSpotInstanceVM]) {
			if taken[node.Name] || len(node.Spec.Taints) > 0 || !ready(&node) {
				continue
			}
			taken[node.Name] = true
			c.bind(pod, node.Name)
			break
		}
	}
}

// bind puts a pod on a node, where it runs.
func (c *cluster) bind(pod *corev1.Pod, node string) {
	c.t.Helper()
	ctx := c.t.Context()
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	require.NoError(c.t, c.SubResource("binding").Create(ctx, pod, binding))
	require.NoError(c.t, c.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	next := pod.DeepCopy()
	next.Status.Phase = corev1.PodRunning
	require.NoError(c.t, c.Status().Patch(ctx, next, client.MergeFrom(pod)))
}

// replaceLost plays the job controller: pods whose machine is gone get a successor.
func (c *cluster) replaceLost() {
	c.t.Helper()
	for _, pod := range c.pods() {
		if pod.Spec.NodeName == "" {
			continue
		}
		if _, exists := c.gce.Instance(pod.Spec.NodeName); exists {
			continue
		}
		require.NoError(c.t, client.IgnoreNotFound(c.Delete(c.t.Context(), &pod, client.GracePeriodSeconds(0))))
		index, err := strconv.Atoi(pod.Labels[spotv1alpha1.LabelReplica])
		require.NoError(c.t, err)
		c.pod(pod.Labels[spotv1alpha1.LabelSpotInstanceVM], pod.Labels[spotv1alpha1.LabelSpotInstanceJob], index)
	}
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
