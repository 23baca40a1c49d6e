package attacks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

const zone = "us-central1-a"

// projects of Compute Engine are reached at one address, as Google's are: the API at its root, and each project's own tokens below its name.
type projects struct {
	url string

	mu       sync.Mutex
	handlers map[string]http.Handler
}

func newProjects(t *testing.T) *projects {
	t.Helper()
	p := &projects{handlers: map[string]http.Handler{}}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// add starts one.
func (p *projects) add(t *testing.T, name string) *fakegce.Server {
	t.Helper()
	return fakegce.Start(t, fakegce.Options{Project: name, URL: p.url + "/" + name, Wrap: func(handler http.Handler) http.Handler {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.handlers[name] = handler
		return handler
	}})
}

// ServeHTTP implements http.Handler.
func (p *projects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ofAPI := strings.CutPrefix(r.URL.Path, "/compute/v1/projects/")
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	p.mu.Lock()
	to := p.handlers[name]
	p.mu.Unlock()
	switch {
	case to == nil:
		http.Error(w, "there is no such project", http.StatusForbidden)
	case ofAPI:
		to.ServeHTTP(w, r)
	default:
		http.StripPrefix("/"+name, to).ServeHTTP(w, r)
	}
}

// instanceVM is a SpotInstanceVM of a project, not yet created.
func instanceVM(namespace, name, project string) *spotv1alpha1.SpotInstanceVM {
	return &spotv1alpha1.SpotInstanceVM{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: spotv1alpha1.SpotInstanceVMSpec{
			VMImage: "projects/p/global/images/family/node",
			GCP:     spotv1alpha1.GCP{Project: project, Zone: zone, MachineType: "n1-standard-4"},
			KubeadmJoinConfig: spotv1alpha1.KubeadmJoinConfig{
				TokenSecretRef: "kubeadm-join",
			},
		},
	}
}

// createVM creates one with credentials of its project. Its instances join with a token of the user.
func (c *cluster) createVM(gce *fakegce.Server, namespace, name string, edits ...func(*spotv1alpha1.SpotInstanceVM)) *spotv1alpha1.SpotInstanceVM {
	c.t.Helper()
	c.secret(namespace, "gcp", map[string]string{"credentials.json": string(gce.CredentialsJSON())})
	c.joinSecret(namespace)
	vm := instanceVM(namespace, name, gce.Project())
	vm.Spec.GCP.CredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
	for _, edit := range edits {
		edit(vm)
	}
	c.create(vm)
	return vm
}

func (c *cluster) joinSecret(namespace string) {
	c.t.Helper()
	c.secret(namespace, "kubeadm-join", map[string]string{
		"token": "abcdef.0123456789abcdef", "ca-cert-hash": "sha256:" + strings.Repeat("0a", 32), "control-plane-endpoint": "10.0.0.1:6443",
	})
}

func (c *cluster) secret(namespace, name string, data map[string]string) {
	c.t.Helper()
	c.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, StringData: data})
}

// spotNamespace makes a namespace that may have instances.
func (c *cluster) spotNamespace() string {
	c.t.Helper()
	return c.namespace(map[string]string{spotv1alpha1.LabelSpotInstances: spotv1alpha1.SpotInstancesAllowed})
}

// unschedulable creates a pod for which the scheduler, which the test plays, finds no room.
func (c *cluster) unschedulable(vm *spotv1alpha1.SpotInstanceVM) {
	c.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "train-", Namespace: vm.Namespace, Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: vm.Name},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "train", Image: "train:1"}}
	c.create(pod)
	before := pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), pod, client.MergeFrom(before)))
}

// awaitVM waits until a SpotInstanceVM is as it should be, and reads it.
func (c *cluster) awaitVM(vm *spotv1alpha1.SpotInstanceVM, what string, is func(*spotv1alpha1.SpotInstanceVMStatus) bool) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("%s is %+v", vm.Name, vm.Status)
		}
	}()
	c.await(what, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && is(&vm.Status), err
	})
}

// instances of a SpotInstanceVM are so many.
func instances(n int) func(*spotv1alpha1.SpotInstanceVMStatus) bool {
	return func(s *spotv1alpha1.SpotInstanceVMStatus) bool { return len(s.ProvisionedInstances) == n }
}

// notAllowed says that a SpotInstanceVM is not allowed for a reason.
func notAllowed(reason string) func(*spotv1alpha1.SpotInstanceVMStatus) bool {
	return func(s *spotv1alpha1.SpotInstanceVMStatus) bool {
		is := meta.FindStatusCondition(s.Conditions, reasons.ConditionAllowed)
		return is != nil && is.Status == metav1.ConditionFalse && is.Reason == reason
	}
}

// end deletes a SpotInstanceVM, and waits for its end.
func (c *cluster) end(vm *spotv1alpha1.SpotInstanceVM) {
	c.t.Helper()
	require.NoError(c.t, c.Delete(c.t.Context(), vm))
	c.await("the end of the SpotInstanceVM", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// labelsOf are those of the instances of a SpotInstanceVM.
func (c *cluster) labelsOf(vm *spotv1alpha1.SpotInstanceVM) map[string]string {
	c.t.Helper()
	var system corev1.Namespace
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, &system))
	return inventory.Owner{Cluster: string(system.UID), VM: client.ObjectKeyFromObject(vm), UID: vm.UID}.Labels()
}

// plant creates an instance without the operator, and waits until it runs.
func (c *cluster) plant(gce *fakegce.Server, name string, labels map[string]string) {
	c.t.Helper()
	provider, err := gcp.New(c.t.Context(), gcp.Options{Project: gce.Project(), Credentials: gce.CredentialsJSON(), Endpoint: c.compute.url})
	require.NoError(c.t, err)
	_, err = provider.Create(c.t.Context(), cloud.InstanceSpec{
		Name: name, Zone: zone, RequestID: string(uuid.NewUUID()), Spot: true, MachineType: "n1-standard-4",
		Image: "projects/p/global/images/family/node", DiskGB: 50, DiskType: "pd-ssd", Labels: labels,
	})
	require.NoError(c.t, err)
	c.await("the planted instance to run", func(context.Context) (bool, error) {
		is, exists := gce.Instance(name)
		return exists && is.State == "RUNNING", nil
	})
}

// isUntouched checks that nothing has written to a Node, nor deleted it.
func (c *cluster) isUntouched(node *corev1.Node) {
	c.t.Helper()
	var now corev1.Node
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(node), &now))
	assert.Nil(c.t, now.DeletionTimestamp)
	assert.Equal(c.t, node.Labels, now.Labels)
	assert.Equal(c.t, node.Annotations, now.Annotations)
	assert.Equal(c.t, node.Spec, now.Spec)
}

// quantities of resources, each after its name.
func quantities(list ...string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for i := 0; i < len(list); i += 2 {
		resources[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
	}
	return resources
}
