package rbac_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

const nodeAgent = "spot-training-operator-node-agent"

// guarded is an API server with the ServiceAccounts, roles and policies of an installation, and nothing else of it.
type guarded struct {
	client.Client

	t         *testing.T
	config    *rest.Config
	namespace string
}

func newGuarded(t *testing.T, i *installations.Installation) *guarded {
	t.Helper()
	config := apiserver.Start(t).Config(t)
	c, err := client.New(config, client.Options{})
	require.NoError(t, err)
	g := &guarded{Client: c, t: t, config: config, namespace: i.Namespace}
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.Namespace}}))
	g.apply(i.Objects...)
	return g
}

// apply creates what of the objects is about who may do what with Nodes.
func (g *guarded) apply(objects ...client.Object) {
	g.t.Helper()
	kinds := []string{
		"", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
	for _, object := range objects {
		if object.GetNamespace() == "kube-system" || !slices.Contains(kinds, object.GetObjectKind().GroupVersionKind().Kind) {
			continue
		}
		require.NoError(g.t, g.Create(g.t.Context(), object.DeepCopyObject().(client.Object)), object.GetName())
	}
}

// has says whether the first object of a file of config/ is there.
func (g *guarded) has(file string) bool {
	g.t.Helper()
	object := installations.Files(g.t, g.namespace, file)[0]
	err := g.Get(g.t.Context(), client.ObjectKeyFromObject(object), object)
	require.NoError(g.t, client.IgnoreNotFound(err))
	return err == nil
}

func (g *guarded) node(labels map[string]string) *corev1.Node {
	g.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-", Labels: labels}}
	require.NoError(g.t, g.Create(g.t.Context(), node))
	return node
}

// as is the API server as a ServiceAccount on a node sees it.
func (g *guarded) as(account string, node *corev1.Node) client.Client {
	g.t.Helper()
	c, err := client.New(apiserver.PodConfig(g.t, g.config, g.namespace, account, node.Name), client.Options{Mapper: g.RESTMapper()})
	require.NoError(g.t, err)
	return c
}

// denied waits until a request is refused with the text: a policy is in force some time after it is created.
func (g *guarded) denied(what, says string, do func() error) {
	g.t.Helper()
	var err error
	apiserver.Await(g.t, what+" being refused", func() bool {
		err = do()
		return err != nil && strings.Contains(err.Error(), says)
	})
	assert.True(g.t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%v", err)
}

func TestNodesAreGuardedHoweverTheOperatorIsInstalled(t *testing.T) {
	for name, installation := range map[string]*installations.Installation{
		"config": installations.Kustomize(t, "default"), "bundle": installations.Bundle(t),
		"config in another namespace": installations.KustomizeIn(t, "elsewhere", "default"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, installation)
			agentMarksItsOwn(g)
			managerChangesSpotInstances(g, installation.Account())
		})
	}
}

// agentMarksItsOwn checks that the token of a node agent is good for its own Node and no other.
func agentMarksItsOwn(g *guarded) {
	g.t.Helper()
	own, other := g.node(nil), g.node(nil)
	agent := g.as(nodeAgent, own)
	mark := func(node *corev1.Node) func() error {
		return patching(g.t, agent, node, `{"metadata":{"annotations":{"training.dcnlab.com/preemption-notice":"2026-05-04T12:00:00Z"}}}`)
	}
	apiserver.Await(g.t, "the agent being allowed to read its Node", func() bool {
		return agent.Get(g.t.Context(), client.ObjectKeyFromObject(own), &corev1.Node{}) == nil
	})
	if !g.has("node-agent/policy.yaml") { // then the right is not there either
		for _, node := range []*corev1.Node{own, other} {
			require.True(g.t, apierrors.IsForbidden(mark(node)()), "it may change Nodes, and nothing limits that")
		}
		g.apply(installations.Files(g.t, g.namespace, "node-agent/policy.yaml")...)
		g.apply(installations.Files(g.t, g.namespace, "node-agent/role.yaml")...)
	}
	g.denied("a mark on another Node", "its token is for "+own.Name+", not for "+other.Name, mark(other))
	require.NoError(g.t, mark(own)())
}

// managerChangesSpotInstances checks that the manager may change and delete the Nodes of spot instances and no others.
func managerChangesSpotInstances(g *guarded, account string) {
	g.t.Helper()
	if !g.has("node-binding/policy.yaml") {
		g.apply(installations.Files(g.t, g.namespace, "node-binding/policy.yaml")...)
	}
	foreign := g.node(map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4"})
	ours := g.node(map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4", spotv1alpha1.LabelSpotInstanceVMNamespace: "team"})
	manager := g.as(account, foreign)
	const taint = `{"spec":{"taints":[{"key":"training.dcnlab.com/idle","effect":"NoSchedule"}]}}`
	const only, labels = "only Nodes of spot instances", "may not change the labels"
	tries := 0
	g.denied("a taint", only, func() error { // another one each time: what changes nothing is not refused
		tries++
		return patching(g.t, manager, foreign, fmt.Sprintf(`{"spec":{"taints":[{"key":"try-%d","effect":"NoSchedule"}]}}`, tries))()
	})
	g.denied("a deletion", only, func() error { return manager.Delete(g.t.Context(), foreign.DeepCopy()) })
	for what, test := range map[string]struct {
		node       *corev1.Node
		says, text string
	}{
		"a label":       {foreign, only, `{"metadata":{"labels":{"training.dcnlab.com/spot-instance-vm-namespace":"team"}}}`},
		"another label": {ours, labels, `{"metadata":{"labels":{"training.dcnlab.com/spot-instance-vm":"v100"}}}`},
		"a label less":  {ours, labels, `{"metadata":{"labels":{"training.dcnlab.com/spot-instance-vm":null}}}`},
	} {
		g.denied(what, test.says, patching(g.t, manager, test.node, test.text))
	}
	const notice = `{"metadata":{"labels":{"training.dcnlab.com/preemption":"true"}}}`
	require.NoError(g.t, patching(g.t, manager, foreign, notice)(), "which workers avoid")
	require.NoError(g.t, patching(g.t, manager, ours, taint)())
	require.NoError(g.t, manager.Delete(g.t.Context(), ours.DeepCopy()))
	require.NoError(g.t, g.Get(g.t.Context(), client.ObjectKeyFromObject(foreign), &corev1.Node{}))
}

// patching is a patch of a Node.
func patching(t *testing.T, c client.Client, node *corev1.Node, text string) func() error {
	return func() error {
		return c.Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(text)))
	}
}
