package rbac_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// spotInstances has an instance created for a pod, taken back by its provider, and another one deleted for lack of work.
func spotInstances(w *world) {
	vm := w.spotVM("spot", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.Prices = []spotv1alpha1.Price{{PerHour: "0.4"}} // which the manager writes onto nodes
	})
	pod := w.unschedulable("lost", vm.Name)
	first := w.becomesNode(vm)
	w.awaitVM(vm, "one ready instance", func(s *spotv1alpha1.SpotInstanceVMStatus) bool { return s.ReadyInstances == 1 })
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: first}}
	require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), pod, binding))

	require.NoError(w.t, w.compute.Preempt(first))
	w.nodeIsDeleted(first)
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0))))

	pod = w.unschedulable("successor", vm.Name)
	second := w.becomesNode(vm)
	require.NoError(w.t, w.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0)))
	w.nodeIsDeleted(second) // by then it was tainted and looked at once more
	require.NoError(w.t, w.Delete(w.t.Context(), vm))
	w.isGone(vm)
}

// orphanedInstance has a user remove the finalizer of a SpotInstanceVM while there is an instance.
func orphanedInstance(w *world) {
	vm := w.spotVM("orphan")
	w.unschedulable("left", vm.Name)
	name := w.becomesNode(vm)
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(vm), vm))
	require.NoError(w.t, w.Delete(w.t.Context(), vm))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(w.t, client.IgnoreNotFound(w.Patch(w.t.Context(), vm, patch)))
	w.await("the end of the instance", func(context.Context) (bool, error) {
		_, exists := w.compute.Instance(name)
		return !exists, nil
	})
	require.NoError(w.t, client.IgnoreNotFound(w.Delete(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})))
}

// joinsByItself has the manager make what an instance joins with: a key pair and, where it may, a token.
func joinsByItself(w *world) {
	w.clusterInfo()
	vm := w.spotVM("joins", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.KubeadmJoinConfig.Method = spotv1alpha1.JoinBySSH
		if w.mayMakeTokens() {
			vm.Spec.KubeadmJoinConfig.TokenSecretRef = ""
		}
	})
	pod := w.unschedulable("joins", vm.Name)
	if w.mayMakeTokens() {
		w.certificateIsApproved(vm)
	}
	name := w.becomesNode(vm)
	w.awaitVM(vm, "a ready instance", func(s *spotv1alpha1.SpotInstanceVMStatus) bool { return s.ReadyInstances == 1 })
	require.NoError(w.t, w.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0)))
	require.NoError(w.t, w.Delete(w.t.Context(), vm))
	w.isGone(vm)
	w.nodeIsDeleted(name)
}

// certificateIsApproved asks for the certificate of the node that an instance becomes, as its kubelet does.
func (w *world) certificateIsApproved(vm *spotv1alpha1.SpotInstanceVM) {
	w.t.Helper()
	var tokens corev1.SecretList
	w.await("a token", func(ctx context.Context) (bool, error) {
		err := w.List(ctx, &tokens, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{
			spotv1alpha1.LabelSpotInstanceVM: vm.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: vm.Namespace,
		})
		return len(tokens.Items) == 1, err
	})
	token := tokens.Items[0]
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:bootstrap:" + string(token.Data["token-id"]), Groups: []string{string(token.Data["auth-extra-groups"]), "system:authenticated"},
	}
	kubelet, err := client.New(config, client.Options{Scheme: w.Scheme()})
	require.NoError(w.t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + token.Labels["training.dcnlab.com/instance"], Organization: []string{"system:nodes"}},
	}, key)
	require.NoError(w.t, err)
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"}}
	request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	request.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	require.NoError(w.t, kubelet.Create(w.t.Context(), request))
	w.await("the approval", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(request), request)
		return len(request.Status.Conditions) > 0 && request.Status.Conditions[0].Type == certificatesv1.CertificateApproved, err
	})
}

// noKeyToLogIn asks for instances that are logged in to with a key that is not stored.
func noKeyToLogIn(w *world) {
	vm := w.spotVM("locked", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.KubeadmJoinConfig.Method = spotv1alpha1.JoinBySSH
		vm.Spec.KubeadmJoinConfig.SSH = &spotv1alpha1.SSH{PrivateKeySecretRef: &spotv1alpha1.SecretReference{Name: "absent"}}
	})
	w.unschedulable("locked", vm.Name)
	w.awaitVM(vm, "the missing key to be told", func(s *spotv1alpha1.SpotInstanceVMStatus) bool {
		ready := meta.FindStatusCondition(s.Conditions, reasons.ConditionReady)
		return ready != nil && ready.Reason == reasons.SecretNotFound
	})
	require.NoError(w.t, w.Delete(w.t.Context(), vm))
	w.isGone(vm)
}

// mayMakeTokens says whether the installation lets the manager make Secrets in kube-system: that of OLM does not.
func (w *world) mayMakeTokens() bool {
	return slices.ContainsFunc(w.installation.Objects, func(object client.Object) bool {
		return object.GetObjectKind().GroupVersionKind().Kind == "Role" && object.GetNamespace() == metav1.NamespaceSystem
	})
}

// clusterInfo creates the ConfigMap that kubeadm leaves behind.
func (w *world) clusterInfo() {
	w.t.Helper()
	info := clientcmdapi.NewConfig()
	info.Clusters[""] = &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443", CertificateAuthorityData: w.config.CAData}
	text, err := clientcmd.Write(*info)
	require.NoError(w.t, err)
	public := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespacePublic}}
	require.NoError(w.t, client.IgnoreAlreadyExists(w.Create(w.t.Context(), public)))
	require.NoError(w.t, client.IgnoreAlreadyExists(w.Create(w.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: metav1.NamespacePublic}, Data: map[string]string{"kubeconfig": string(text)},
	})))
}

// spotVM creates a SpotInstanceVM that joins instances with a token of the user.
func (w *world) spotVM(name string, edits ...func(*spotv1alpha1.SpotInstanceVM)) *spotv1alpha1.SpotInstanceVM {
	w.t.Helper()
	for secret, data := range map[string]map[string]string{
		"gcp": {"credentials.json": string(w.compute.CredentialsJSON())},
		"kubeadm-join": {
			"token": "abcdef.0123456789abcdef", "ca-cert-hash": "sha256:" + strings.Repeat("0a", 32), "control-plane-endpoint": "10.0.0.1:6443",
		},
	} {
		object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret, Namespace: w.namespace}, StringData: data}
		require.NoError(w.t, w.Create(w.t.Context(), object))
	}
	builders.AllowSpotInstances(w.t, w.Client, w.namespace)
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	vm.Spec = spotv1alpha1.SpotInstanceVMSpec{
		VMImage: "projects/p/global/images/family/node",
		GCP: spotv1alpha1.GCP{
			Project: w.compute.Project(), Zone: "us-central1-a", MachineType: "n1-standard-4",
			CredentialsSecretRef: &spotv1alpha1.SecretReference{Name: "gcp"},
		},
		KubeadmJoinConfig: spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: "kubeadm-join"},
		IdleTimeout:       &metav1.Duration{},
	}
	for _, edit := range edits {
		edit(vm)
	}
	require.NoError(w.t, w.Create(w.t.Context(), vm))
	return vm
}

// unschedulable creates a pod for which the scheduler, which the test plays, finds no room.
func (w *world) unschedulable(name, vm string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: w.namespace, Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: vm},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "train", Image: "train:1"}}
	require.NoError(w.t, w.Create(w.t.Context(), pod))
	w.become(pod, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
	}}})
	return pod
}

// becomesNode waits for an instance of the SpotInstanceVM that runs, and plays its kubelet.
func (w *world) becomesNode(vm *spotv1alpha1.SpotInstanceVM) string {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
		spotv1alpha1.LabelSpotInstanceVM: vm.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: vm.Namespace,
	}}}
	w.await("an instance", func(context.Context) (bool, error) {
		for _, i := range w.compute.Instances() {
			if i.Labels["spot-training-vm-uid"] == string(vm.UID) && i.State == "RUNNING" {
				node.Name = i.Name
				return true, nil
			}
		}
		return false, nil
	})
	require.NoError(w.t, w.Create(w.t.Context(), node))
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("14Gi")}
	require.NoError(w.t, w.Status().Patch(w.t.Context(), node, client.MergeFrom(before)))
	return node.Name
}

func (w *world) nodeIsDeleted(name string) {
	w.t.Helper()
	w.isGone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (w *world) isGone(object client.Object) {
	w.t.Helper()
	w.await("the end of "+object.GetName(), func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func (w *world) awaitVM(vm *spotv1alpha1.SpotInstanceVM, what string, is func(*spotv1alpha1.SpotInstanceVMStatus) bool) {
	w.t.Helper()
	w.await(what, func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && is(&vm.Status), err
	})
}
