//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// machinesOf is a SpotInstanceVM that asks for nothing as long as no pod waits.
func machinesOf(namespace string) *spotv1alpha1.SpotInstanceVM {
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gpus"}}
	vm.Spec.VMImage = "projects/test-project/global/images/family/node"
	vm.Spec.MaxInstances = 1
	vm.Spec.GCP.Project, vm.Spec.GCP.Zone, vm.Spec.GCP.MachineType = "test-project", joinZone, "n1-standard-4"
	vm.Spec.GCP.CredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
	return vm
}

// Who may edit a namespace creates no machines that join the cluster; who is given that right needs a namespace that an administrator
// allows to have them.
func TestWhoMayEditANamespaceHasNoMachinesJoin(t *testing.T) {
	t.Parallel()
	ns, c := namespace(t), spotClient(t)
	require.NoError(t, c.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ada"}},
	}))
	as := rest.CopyConfig(cluster.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "ada"}
	ada, err := client.New(as, client.Options{Scheme: c.Scheme()})
	require.NoError(t, err)
	eventually(t, "ada may edit the namespace", func(ctx context.Context) (bool, error) {
		return ada.List(ctx, &spotv1alpha1.SpotInstanceJobList{}, client.InNamespace(ns)) == nil, nil
	})
	assert.True(t, apierrors.IsForbidden(ada.Create(t.Context(), machinesOf(ns))))

	vm := machinesOf(ns)
	require.NoError(t, c.Create(t.Context(), vm))
	reason := func(wanted string) {
		t.Helper()
		eventually(t, "Allowed says "+wanted, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(vm), vm)
			allowed := meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionAllowed)
			return allowed != nil && allowed.Reason == wanted, err
		})
	}
	reason(reasons.NamespaceNotAllowed)
	assert.Contains(t, meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionAllowed).Message, "kubectl label namespace "+ns)
	builders.AllowSpotInstances(t, c, ns)
	reason(reasons.NamespaceAllowed)
	require.NoError(t, c.Delete(t.Context(), vm))
}

// Who reads the token of an instance gets the certificate of that instance's node, and of no other.
func TestATokenOfAnInstanceGivesNoOtherNode(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	instance := nodejoin.Instance{Name: "boundary-a1b2c", VM: types.NamespacedName{Namespace: "e2e", Name: "boundary"}}
	tokens := nodejoin.Tokens{Client: cluster.Client, Reader: cluster.Client}
	token, err := tokens.Make(ctx, instance, patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tokens.Revoke(context.WithoutCancel(ctx), instance) })
	anonymous := rest.AnonymousClientConfig(cluster.config)
	anonymous.BearerToken = token
	holder, err := client.New(anonymous, client.Options{Scheme: cluster.Scheme(), Mapper: cluster.RESTMapper()})
	require.NoError(t, err)
	var nodes corev1.NodeList
	require.NoError(t, cluster.List(ctx, &nodes))

	stolen := certificateFor(t, holder, nodes.Items[0].Name)
	own := certificateFor(t, holder, instance.Name)

	eventually(t, "the certificate of the instance's own node is made", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(own), own)
		return len(own.Status.Certificate) > 0, err
	})
	// It was asked for first.
	require.NoError(t, cluster.Get(ctx, client.ObjectKeyFromObject(stolen), stolen))
	assert.Empty(t, stolen.Status.Conditions)
	assert.Empty(t, stolen.Status.Certificate)
}

// certificateFor asks for the certificate of a node, as a kubelet does.
func certificateFor(t *testing.T, by client.Client, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	require.NoError(t, err)
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "boundary-"}}
	request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	request.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	eventually(t, "the API server knows the token", func(ctx context.Context) (bool, error) { return by.Create(ctx, request) == nil, nil })
	t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), request) })
	return request
}

// The namespace of a SpotInstanceVM ends, and nothing is paid for any more, in whichever order its objects are deleted.
func TestANamespaceEndsThoughItsCredentialsAreDeletedFirst(t *testing.T) {
	ns := namespace(t)
	s := newSpotCloud(t, ns, managerImage(t))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "waits", Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name}},
		Spec: corev1.PodSpec{
			NodeSelector:    map[string]string{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name},
			SecurityContext: restrictedPod(),
			Containers:      []corev1.Container{{Name: "main", Image: managerImage(t), Args: []string{"--help"}, SecurityContext: restrictedContainer()}},
		},
	}
	require.NoError(t, cluster.Create(t.Context(), pod))
	eventually(t, "there is an instance", func(context.Context) (bool, error) { return len(s.Instances()) > 0, nil })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gcp"}}
	require.NoError(t, cluster.Delete(t.Context(), secret))
	for _, manager := range managerPods(t) { // the next process remembers no credentials
		require.NoError(t, cluster.Delete(t.Context(), &manager))
	}

	require.NoError(t, cluster.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))

	eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	assert.Empty(t, s.Instances(), "instances that are paid for")
}
