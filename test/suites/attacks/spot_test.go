package attacks_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const spotGroup = "training.training.dcnlab.com"

// startsMachines is attack 1: the machines would join the cluster, and run a script of that user's as root.
func startsMachines(c *cluster) {
	gce := c.compute.add(c.t, "machines")
	team := c.namespace(nil)
	for _, role := range []string{"admin", "edit"} {
		user := role + "-of-" + team
		c.bind(team, role, user)
		c.awaitRight(user, "create", spotGroup, "spotinstancejobs", team)
		for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
			what := authorizationv1.ResourceAttributes{Verb: verb, Group: spotGroup, Resource: "spotinstancevms", Namespace: team}
			assert.False(c.t, c.may(user, what), "%s may %s", role, verb)
		}
		for _, verb := range []string{"update", "patch"} {
			what := authorizationv1.ResourceAttributes{Verb: verb, Resource: "namespaces", Name: team, Namespace: team}
			assert.False(c.t, c.may(user, what), "%s may %s the label that allows instances", role, verb)
		}
		err := c.as(user).Create(c.t.Context(), instanceVM(team, "t4", gce.Project()))
		assert.True(c.t, apierrors.IsForbidden(err), "%v", err)
	}

	// Not even who is given the role has instances where no administrator allows them.
	trusted := "trusted-of-" + team
	c.bind(team, c.role("spotinstancevm-editor-role"), trusted)
	c.awaitRight(trusted, "create", spotGroup, "spotinstancevms", team)
	vm := c.createVM(gce, team, "t4")
	c.unschedulable(vm)
	c.awaitVM(vm, "the refusal", notAllowed(reasons.NamespaceNotAllowed))
	assert.Empty(c.t, gce.Requests())
	builders.AllowSpotInstances(c.t, c, team)
	c.awaitVM(vm, "an instance", instances(1))
}

// asksForCertificates is attack 2.
func asksForCertificates(c *cluster) {
	if !c.approves() { // where OLM installs it, users give tokens of their own
		for _, what := range []authorizationv1.ResourceAttributes{
			{Verb: "update", Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: "approval"},
			{Verb: "approve", Group: certificatesv1.GroupName, Resource: "signers", Name: certificatesv1.KubeAPIServerClientKubeletSignerName},
		} {
			assert.False(c.t, c.may(c.form.User(), what), "%v", what)
		}
		return
	}
	gce := c.compute.add(c.t, "certificates")
	vm := c.createVM(gce, c.spotNamespace(), "t4", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.KubeadmJoinConfig = spotv1alpha1.KubeadmJoinConfig{}
	})
	c.unschedulable(vm)
	var token corev1.Secret
	c.await("the token of an instance", func(ctx context.Context) (bool, error) {
		var tokens corev1.SecretList
		err := c.List(ctx, &tokens, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels(nodeLabels(vm)))
		if err != nil || len(tokens.Items) == 0 {
			return false, err
		}
		token = tokens.Items[0]
		return true, nil
	})
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = string(token.Data["token-id"]) + "." + string(token.Data["token-secret"])
	machine := c.by(config)
	instance := token.Labels["training.dcnlab.com/instance"]
	other := c.node("", nil)

	var foreign, own *certificatesv1.CertificateSigningRequest
	c.await("the token being good", func(context.Context) (bool, error) {
		var err error
		foreign, err = c.requestCertificate(machine, other.Name)
		return err == nil, err
	})
	own, err := c.requestCertificate(machine, instance)
	require.NoError(c.t, err)
	c.await("the certificate of its own Node", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(own), own)
		return isApproved(own), err
	})
	c.isNotApproved(foreign)

	c.node(instance, nodeLabels(vm))
	c.awaitVM(vm, "the node to be ready", func(s *spotv1alpha1.SpotInstanceVMStatus) bool { return s.ReadyInstances == 1 })
	var again []*certificatesv1.CertificateSigningRequest
	c.await("the end of the token", func(context.Context) (bool, error) {
		request, err := c.requestCertificate(machine, instance)
		if err == nil {
			again = append(again, request)
		}
		return apierrors.IsUnauthorized(err), nil
	})
	for _, request := range append(again, foreign) {
		c.isNotApproved(request)
	}
}

// approves says whether the installation has the manager make tokens, and approve the certificates of who has one: that of OLM does not.
func (c *cluster) approves() bool {
	return slices.ContainsFunc(c.form.Objects, func(object client.Object) bool {
		return object.GetObjectKind().GroupVersionKind().Kind == "Role" && object.GetNamespace() == metav1.NamespaceSystem
	})
}

// nodeLabels are those that an instance registers its Node with.
func nodeLabels(vm *spotv1alpha1.SpotInstanceVM) map[string]string {
	return map[string]string{spotv1alpha1.LabelSpotInstanceVM: vm.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: vm.Namespace}
}

// requestCertificate asks for the certificate of a Node, as a kubelet does.
func (c *cluster) requestCertificate(machine client.Client, node string) (*certificatesv1.CertificateSigningRequest, error) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	require.NoError(c.t, err)
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"}}
	request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	request.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	return request, machine.Create(c.t.Context(), request)
}

func isApproved(request *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(request.Status.Conditions, func(is certificatesv1.CertificateSigningRequestCondition) bool {
		return is.Type == certificatesv1.CertificateApproved
	})
}

func (c *cluster) isNotApproved(request *certificatesv1.CertificateSigningRequest) {
	c.t.Helper()
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(request), request))
	assert.False(c.t, isApproved(request))
}

// plantsAnInstanceElsewhere is attack 3. Who plants it has a SpotInstanceVM, so that the operator lists the project.
func plantsAnInstanceElsewhere(c *cluster) {
	ours, theirs := c.compute.add(c.t, "ours-only"), c.compute.add(c.t, "intruder")
	vm := c.createVM(ours, c.spotNamespace(), "t4")
	node := c.node("t4-plant", nil)
	c.plant(ours, "t4-plant", nil)
	c.plant(theirs, "t4-plant", c.labelsOf(vm))
	calls := len(theirs.Requests())
	c.createVM(theirs, c.spotNamespace(), "mallory")
	c.unschedulable(vm)
	c.awaitVM(vm, "an instance, after the list that has the planted one", func(s *spotv1alpha1.SpotInstanceVMStatus) bool {
		return len(s.ProvisionedInstances) == 1 && theirs.Calls("compute.instances.list", zone) >= 2
	})
	assert.NotEqual(c.t, "t4-plant", vm.Status.ProvisionedInstances[0].Name)
	for _, request := range theirs.Requests()[calls:] {
		assert.NotContains(c.t, []string{"compute.instances.insert", "compute.instances.delete"}, request.Method)
	}
	_, exists := theirs.Instance("t4-plant")
	assert.True(c.t, exists, "while there is a SpotInstanceVM with the labels of the one in %s", theirs.Project())
	c.end(vm)
	_, exists = ours.Instance("t4-plant")
	assert.True(c.t, exists, "the one in %s", ours.Project())
	c.isUntouched(node)
}

// takesTheNameOfANode is attack 4, for an instance that the operator takes for its own.
func takesTheNameOfANode(c *cluster) {
	gce := c.compute.add(c.t, "same-names")
	vm := c.createVM(gce, c.spotNamespace(), "t4")
	taken, again := c.node("t4-taken", nil), c.node("t4-again", nil)
	c.plant(gce, taken.Name, c.labelsOf(vm))
	c.awaitVM(vm, "the adoption of the instance", instances(1))
	require.NoError(c.t, gce.Preempt(taken.Name))
	c.awaitVM(vm, "its end", instances(0))
	c.plant(gce, again.Name, c.labelsOf(vm))
	c.awaitVM(vm, "the adoption of another", instances(1))
	c.end(vm)
	assert.Empty(c.t, gce.Instances())
	c.isUntouched(taken)
	c.isUntouched(again)
	managerIsLimited(c)
}

// managerIsLimited checks that the manager's own token may change and delete the Nodes of spot instances and no others.
func managerIsLimited(c *cluster) {
	vm := instanceVM("team", "t4", "")
	foreign, ours := c.node("", map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4"}), c.node("", nodeLabels(vm))
	manager := c.asAccount(c.form.Namespace, c.form.Account(), foreign.Name)
	c.await("the right to read Nodes", func(ctx context.Context) (bool, error) {
		return true, manager.Get(ctx, client.ObjectKeyFromObject(foreign), &corev1.Node{})
	})
	patch := func(node *corev1.Node, text string) func() error {
		return func() error { return manager.Patch(c.t.Context(), node.DeepCopy(), mergePatch(text), client.DryRunAll) }
	}
	const only, labels = "only Nodes of spot instances", "may not change the labels"
	const taint = `{"spec":{"taints":[{"key":"training.dcnlab.com/idle","effect":"NoSchedule"}]}}`
	for what, try := range map[string]struct {
		says string
		do   func() error
	}{
		"a taint":       {only, patch(foreign, taint)},
		"a deletion":    {only, func() error { return manager.Delete(c.t.Context(), foreign.DeepCopy(), client.DryRunAll) }},
		"a label":       {only, patch(foreign, `{"metadata":{"labels":{"training.dcnlab.com/spot-instance-vm-namespace":"team"}}}`)},
		"another label": {labels, patch(ours, `{"metadata":{"labels":{"training.dcnlab.com/spot-instance-vm":"v100"}}}`)},
		// The garbage collector deletes what all owners of are gone.
		"an owner":     {only, patch(foreign, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"gone","uid":"gone"}]}}`)},
		"a finalizer":  {only, patch(foreign, `{"metadata":{"finalizers":["training.dcnlab.com/kept"]}}`)},
		"a label less": {labels, patch(ours, `{"metadata":{"labels":{"training.dcnlab.com/spot-instance-vm":null}}}`)},
	} {
		c.refusedByPolicy(what, try.says, try.do)
	}
	require.NoError(c.t, patch(foreign, `{"metadata":{"labels":{"training.dcnlab.com/preemption":"true"}}}`)(), "which workers avoid")
	require.NoError(c.t, patch(ours, taint)())
	require.NoError(c.t, manager.Delete(c.t.Context(), ours.DeepCopy(), client.DryRunAll))

	// What RBAC refuses by itself needs no policy.
	for _, namespace := range []string{metav1.NamespaceSystem, c.namespace(nil)} {
		token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "stolen", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		}, Type: corev1.SecretTypeServiceAccountToken}
		if c.may(c.form.User(), authorizationv1.ResourceAttributes{Verb: "create", Resource: "secrets", Namespace: namespace}) {
			c.refusedByPolicy("a token in "+namespace, "no Secrets but bootstrap tokens of its own", func() error {
				return manager.Create(c.t.Context(), token.DeepCopy(), client.DryRunAll)
			})
		}
	}
}

// refusedByPolicy waits until a request is refused with the text, where the installation has its policies: one is in force some time after it
// is created. Without them, which is what OLM installs, nothing refuses it: docs/olm.md says so.
func (c *cluster) refusedByPolicy(what, says string, do func() error) {
	c.t.Helper()
	if !c.form.policies {
		require.NoError(c.t, do(), "%s: something refuses it now: change docs/olm.md", what)
		return
	}
	var err error
	c.await(what+" being refused", func(context.Context) (bool, error) {
		err = do()
		if err == nil {
			return false, nil
		}
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return false, fmt.Errorf("refused otherwise: %w", err)
		}
		return true, nil
	})
	assert.ErrorContains(c.t, err, says)
}

// usesTheOperatorsIdentity is attack 5.
func usesTheOperatorsIdentity(c *cluster) {
	team := c.spotNamespace()
	c.joinSecret(team)
	vm := instanceVM(team, "t4", c.deputy.Project())
	vm.Spec.GCP.ServiceAccount = "owner@deputy.iam.gserviceaccount.com"
	c.create(vm)
	c.unschedulable(vm)
	c.awaitVM(vm, "the refusal", notAllowed(reasons.IdentityNotAllowed))
	allow := func(account string) {
		uses := fmt.Sprintf(`[{"project":%q,"serviceAccount":%q}]`, c.deputy.Project(), account)
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, spotv1alpha1.AnnotationOperatorIdentity, uses)
		require.NoError(c.t, c.Patch(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}, mergePatch(patch)))
	}
	allow("node@deputy.iam.gserviceaccount.com")
	c.awaitVM(vm, "the refusal to tell what is allowed", func(s *spotv1alpha1.SpotInstanceVMStatus) bool {
		is := meta.FindStatusCondition(s.Conditions, reasons.ConditionAllowed)
		return notAllowed(reasons.IdentityNotAllowed)(s) && strings.Contains(is.Message, "node@deputy") && strings.Contains(is.Message, "owner@deputy")
	})
	assert.Empty(c.t, c.deputy.Requests())
	allow("owner@deputy.iam.gserviceaccount.com")
	c.awaitVM(vm, "an instance", instances(1))
}
