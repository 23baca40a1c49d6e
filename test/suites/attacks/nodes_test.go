package attacks_test

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	nodeAgent       = "spot-training-operator-node-agent"
	checkpointAgent = "spot-checkpoint-agent"
)

// marksAnotherNode is attack 6.
func marksAnotherNode(c *cluster) {
	own, other := c.node("", nil), c.node("", nil)
	agent := c.asAccount(c.form.Namespace, nodeAgent, own.Name)
	mark := func(node *corev1.Node) error {
		return agent.Patch(c.t.Context(), node.DeepCopy(),
			mergePatch(`{"metadata":{"annotations":{"training.dcnlab.com/preemption-notice":"2026-05-04T12:00:00Z"}}}`), client.DryRunAll)
	}
	c.await("the agent being allowed to read its Node", func(ctx context.Context) (bool, error) {
		return true, agent.Get(ctx, client.ObjectKeyFromObject(own), &corev1.Node{})
	})
	if !c.form.policies { // then the right is not there either
		for _, node := range []*corev1.Node{own, other} {
			assert.True(c.t, apierrors.IsForbidden(mark(node)), "it may change Nodes, and nothing limits that")
		}
		return
	}
	c.refusedByPolicy("a mark on another Node", "its token is for "+own.Name+", not for "+other.Name, func() error { return mark(other) })
	require.NoError(c.t, mark(own))
}

// needsTheCheckpointAgent is for attacks on a program that no installation has: it is added by config/checkpoint-agent, which is the same for
// all of them.
func needsTheCheckpointAgent(c *cluster) {
	for _, object := range c.form.Objects {
		assert.NotEqual(c.t, "DaemonSet", object.GetObjectKind().GroupVersionKind().Kind)
		assert.NotEqual(c.t, checkpointAgent, object.GetName())
	}
}

// checkpointAgentArguments are those that the checkpoint agent is added with.
func (c *cluster) checkpointAgentArguments() []string {
	c.t.Helper()
	for _, object := range c.checkpointAgent {
		if object.GetKind() == "DaemonSet" {
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			require.NoError(c.t, err)
			arguments, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			require.NoError(c.t, err)
			return arguments
		}
	}
	require.Fail(c.t, "config/checkpoint-agent has no DaemonSet")
	return nil
}

// deletesAPodElsewhere is attack 9, with the checkpoint agent added to the installation.
func deletesAPodElsewhere(c *cluster) {
	needsTheCheckpointAgent(c)
	for _, object := range c.checkpointAgent {
		if kind := object.GetKind(); kind != "CustomResourceDefinition" && kind != "DaemonSet" {
			c.create(object.DeepCopy())
		}
	}
	here, there := c.node("", nil), c.node("", nil)
	team := c.namespace(nil)
	agent := c.asAccount(checkpointAgent, checkpointAgent, here.Name)
	remove := func(node *corev1.Node) func() error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "train-", Namespace: team}}
		pod.Spec.NodeName, pod.Spec.Containers = node.Name, []corev1.Container{{Name: "train", Image: "train:1"}}
		c.create(pod)
		return func() error { return agent.Delete(c.t.Context(), pod.DeepCopy(), client.DryRunAll) }
	}
	c.await("the right to delete pods", func(context.Context) (bool, error) { return true, remove(here)() })
	elsewhere := remove(there)
	var err error
	c.await("the deletion elsewhere being refused", func(context.Context) (bool, error) {
		err = elsewhere()
		return err != nil, nil
	})
	assert.ErrorContains(c.t, err, "may delete pods of the node that it runs on and no others")
}
