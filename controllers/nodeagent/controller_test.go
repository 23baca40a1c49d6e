package nodeagent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// patience bounds every wait.
const patience = 30 * time.Second

// world is a namespace of the operator, on a cluster that the tests share.
type world struct {
	client.Client

	t         *testing.T
	namespace string
}

func newWorld(t *testing.T, labels map[string]string) *world {
	t.Helper()
	c, err := client.NewWithWatch(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-", Labels: labels}}
	require.NoError(t, c.Create(t.Context(), namespace))
	w := &world{c, t, namespace.Name}
	for _, object := range slices.Concat(guard(t), w.right()) {
		w.create(object)
	}
	w.awaitRight(true)
	return w
}

// guard are the objects that limit the agent to its own Node.
func guard(t *testing.T) []client.Object {
	t.Helper()
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	decode(t, "policy.yaml", policy, binding)
	return []client.Object{policy, binding}
}

// right are the objects that let the agent patch Nodes.
func (w *world) right() []client.Object {
	w.t.Helper()
	role, binding := &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}
	decode(w.t, "role.yaml", role, binding)
	binding.Subjects[0].Namespace = w.namespace
	return []client.Object{role, binding}
}

// decode the documents of a file of config/node-agent.
func decode(t *testing.T, name string, into ...client.Object) {
	t.Helper()
	file, err := os.Open(filepath.Join(apiserver.Root(), "config", "node-agent", name))
	require.NoError(t, err)
	defer file.Close()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for _, object := range into {
		require.NoError(t, documents.Decode(object))
	}
}

// reviews is a client that asks what the agent may do.
func (w *world) reviews() kubernetes.Interface {
	w.t.Helper()
	reviews, err := kubernetes.NewForConfig(api.Config(w.t))
	require.NoError(w.t, err)
	return reviews
}

// awaitRight waits until the API server has heard that the agent may patch Nodes, or may not.
func (w *world) awaitRight(may bool) {
	w.t.Helper()
	r := &Reconciler{Reviews: w.reviews(), Settings: Settings{Namespace: w.namespace}}
	require.Eventually(w.t, func() bool {
		is, err := r.mayMark(w.t.Context())
		return err == nil && is == may
	}, patience, 20*time.Millisecond)
}

// create an object that is deleted after the test.
func (w *world) create(object client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), object))
	w.t.Cleanup(func() { assert.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), object))) })
}

func (w *world) vm() *spotv1alpha1.SpotInstanceVM {
	w.t.Helper()
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "gpu"}}
	vm.Spec.VMImage = "projects/debian-cloud/global/images/family/debian-12"
	vm.Spec.GCP.Project, vm.Spec.GCP.Zone, vm.Spec.GCP.MachineType = "test-project", "us-central1-a", "n1-standard-4"
	w.create(vm)
	return vm
}

// start the controller, as the manager does; it ends with the test, or by the function returned.
func (w *world) start(image string) (stop func()) {
	w.t.Helper()
	mgr := managers.New(w.t, api.Config(w.t), scheme, cache.Options{ByObject: CachedObjects(w.namespace)})
	r := &Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Reviews: w.reviews(), Recorder: mgr.GetEventRecorder("spot-training-operator"),
		Settings: Settings{Namespace: w.namespace, Image: image},
	}
	require.NoError(w.t, r.SetupWithManager(mgr))
	return mgr.Run()
}

// set waits until the DaemonSet is as it should be.
func (w *world) set(what string, is func(*appsv1.DaemonSet) bool) *appsv1.DaemonSet {
	w.t.Helper()
	var set appsv1.DaemonSet
	require.Eventually(w.t, func() bool {
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: Name}, &set)
		return err == nil && is(&set)
	}, patience, 50*time.Millisecond, what)
	return &set
}

func (w *world) noSet() {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		err := w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: Name}, &appsv1.DaemonSet{})
		return apierrors.IsNotFound(err)
	}, patience, 50*time.Millisecond, "the DaemonSet is gone")
}

func is(*appsv1.DaemonSet) bool { return true }

func TestTheAgentIsThereAsLongAsTheClusterHasSpot(t *testing.T) {
	w := newWorld(t, nil)
	w.start("operator:1")
	plain := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "plain-" + w.namespace}}
	w.create(plain)

	vm := w.vm()
	set := w.set("a SpotInstanceVM brings it", is)
	assert.Equal(t, "system-node-critical", set.Spec.Template.Spec.PriorityClassName)
	assert.Empty(t, set.OwnerReferences)

	require.NoError(t, w.Delete(t.Context(), vm))
	w.noSet()

	// A node pool of GKE's: the label may come after the node.
	plain.Labels = map[string]string{"cloud.google.com/gke-spot": "true"}
	require.NoError(t, w.Update(t.Context(), plain))
	w.set("a spot node brings it", is)
	require.NoError(t, w.Delete(t.Context(), plain))
	w.noSet()
}

func TestTheAgentFollowsTheManager(t *testing.T) {
	w := newWorld(t, nil)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: ManagerName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec: corev1.PodSpec{
					Containers:       []corev1.Container{{Name: "manager", Image: "operator:1"}},
					ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
				},
			},
		},
	}
	w.create(deployment)
	w.vm()
	stop := w.start("operator:1")
	first := w.set("it is made", is)
	assert.Equal(t, deployment.UID, first.OwnerReferences[0].UID, "deleted with the Deployment")
	assert.Equal(t, deployment.Spec.Template.Spec.ImagePullSecrets, first.Spec.Template.Spec.ImagePullSecrets)
	stop()

	w.start("operator:2")
	second := w.set("the new manager's image rolls", func(set *appsv1.DaemonSet) bool {
		return set.Spec.Template.Spec.Containers[0].Image == "operator:2"
	})
	assert.Equal(t, first.UID, second.UID)
	assert.Equal(t, first.Generation+1, second.Generation)

	changed := second.DeepCopy()
	changed.Spec.Template.Spec.Tolerations[0] = corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	require.NoError(t, w.Update(t.Context(), changed))
	w.set("what was changed is put back", func(set *appsv1.DaemonSet) bool {
		return set.Generation > changed.Generation && set.Spec.Template.Spec.Tolerations[0].Key == ""
	})

	require.NoError(t, w.Delete(t.Context(), second))
	w.set("what was deleted is created again", func(set *appsv1.DaemonSet) bool { return set.UID != first.UID })
}

func TestThereIsNoAgentWhereNothingLimitsItToItsNode(t *testing.T) {
	for name, lift := range map[string]func(*world){
		"without the policy":  func(w *world) { require.NoError(t, w.Delete(t.Context(), guard(t)[0])) },
		"without its binding": func(w *world) { require.NoError(t, w.Delete(t.Context(), guard(t)[1])) },
		"it only warns": func(w *world) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"validationActions":["Warn"]}}`))
			require.NoError(t, w.Patch(t.Context(), guard(t)[1], patch))
		},
		"it is for some nodes": func(w *world) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}}}`))
			require.NoError(t, w.Patch(t.Context(), guard(t)[1], patch))
		},
		"it lets pass what it cannot judge": func(w *world) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"failurePolicy":"Ignore"}}`))
			require.NoError(t, w.Patch(t.Context(), guard(t)[0], patch))
		},
		"it is for the agent of another namespace": func(w *world) { w.matchUser("spot-training-operator-system") },
	} {
		t.Run(name, func(t *testing.T) {
			isHeldBack(t, lift, "the ValidatingAdmissionPolicy spot-training-operator-node-agent, which limits it to its own Node, is not installed")
		})
	}
}

// As after an upgrade by OLM from a version whose bundle had the right: the administrator had applied the policy alone.
func TestThereIsNoAgentThatMayNotMarkItsNode(t *testing.T) {
	isHeldBack(t, func(w *world) {
		require.NoError(t, w.Delete(t.Context(), w.right()[1]))
		w.awaitRight(false)
	}, "may not patch Nodes: apply config/node-agent/role.yaml")
}

func TestAPolicyForTheAgentOfThisNamespaceIsAGuard(t *testing.T) {
	w := newWorld(t, nil)
	w.matchUser(w.namespace)
	w.vm()
	w.start("operator:1")
	w.set("it is made", is)
}

// matchUser has the policy match the agent of one namespace, as that of version 0.3 did.
func (w *world) matchUser(namespace string) {
	w.t.Helper()
	policy := guard(w.t)[0].(*admissionregistrationv1.ValidatingAdmissionPolicy)
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(policy), policy))
	policy.Spec.MatchConditions[0].Expression = `request.userInfo.username == "system:serviceaccount:` + namespace + `:` + Name + `"`
	require.NoError(w.t, w.Update(w.t.Context(), policy))
}

// isHeldBack checks that an agent goes when something is lifted that it needs, and that an event says so.
func isHeldBack(t *testing.T, lift func(*world), warning string) {
	t.Helper()
	w := newWorld(t, nil)
	w.create(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: ManagerName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "operator:1"}}},
			},
		},
	})
	w.vm()
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{Client: w.Client, Direct: w.Client, Reviews: w.reviews(), Recorder: recorder, Settings: Settings{Namespace: w.namespace, Image: "operator:1"}}
	look := func() {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		require.NoError(t, err)
		assert.Equal(t, guardInterval, result.RequeueAfter, "the policy may come and go")
	}
	look()
	w.set("it is made", is)
	assert.Empty(t, recorder.Events)

	lift(w)
	look()
	w.noSet()
	event := <-recorder.Events
	assert.Contains(t, event, "Warning NodeAgentUnguarded no node agent runs on spot nodes: ")
	assert.Contains(t, event, warning)
	look()
	w.noSet()
}

func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	w := newWorld(t, nil)
	w.vm()
	stop := w.start("operator:1")
	first := w.set("it is made", is)
	stop()

	patches := 0
	counted := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, object, patch, options...)
		},
	})
	r := &Reconciler{Client: counted, Direct: w.Client, Reviews: w.reviews(), Settings: Settings{Namespace: w.namespace, Image: "operator:1"}}
	for range 3 {
		_, err := r.Reconcile(t.Context(), ctrl.Request{})
		require.NoError(t, err)
	}
	assert.Equal(t, 1, patches, "one of a manager that has just started, which changes nothing")
	again := w.set("it is there", is)
	assert.Equal(t, first.ManagedFields, again.ManagedFields)
	assert.Equal(t, first.ResourceVersion, again.ResourceVersion)
}

func TestANamespaceWithoutCriticalPods(t *testing.T) {
	w := newWorld(t, nil)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "no-critical-pods"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
				Values: []string{"system-node-critical", "system-cluster-critical"},
			}}},
		},
	}
	w.create(quota)
	// The test plays the controller that keeps the figures of quotas.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
	require.NoError(t, w.Status().Update(t.Context(), quota))
	w.vm()
	w.start("operator:1")
	set := w.set("it is made", is)
	assert.Empty(t, set.Spec.Template.Spec.PriorityClassName)
}

func TestTheAgentIsAdmittedWherePodSecurityIsRestricted(t *testing.T) {
	w := newWorld(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	set := daemonSet(Settings{Namespace: w.namespace, Image: "operator:1"}, nil)
	r := &Reconciler{Client: w.Client}
	critical, err := r.mayBeCritical(t.Context(), set)
	require.NoError(t, err)
	assert.True(t, critical)

	set.Spec.Template.Spec.Containers[0].SecurityContext = nil
	critical, err = r.mayBeCritical(t.Context(), set)
	require.NoError(t, err)
	assert.False(t, critical, "the check sees what is refused")
}
