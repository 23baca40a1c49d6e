package spotinstancevm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// secret is one as the API server has it; nil when it is gone.
func (c *cluster) secret(name string) *corev1.Secret {
	c.t.Helper()
	secret := &corev1.Secret{}
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	return secret
}

// addSecret creates one with the credentials of the cloud.
func (c *cluster) addSecret(name string) {
	c.t.Helper()
	require.NoError(c.t, c.Create(c.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}, Data: map[string][]byte{credentialsKey: c.gce.CredentialsJSON()},
	}))
}

func says(words string) func(*spotv1alpha1.SpotInstanceVM) bool {
	return func(vm *spotv1alpha1.SpotInstanceVM) bool {
		is := meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionCredentialsValid)
		return is != nil && is.Status == metav1.ConditionFalse && strings.Contains(is.Message, words)
	}
}

// As when a namespace is deleted: the Secret goes before the SpotInstanceVM, and no manager knows what was in it.
func TestAPIInstancesAreDeletedThoughTheirSecretIsDeletedFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))
	m.stop()
	require.NoError(t, c.Delete(t.Context(), c.secret("gcp")))

	m = c.start(newFuse(0))
	c.pod("t4", "bert", 1)
	c.await(vm, "the condition", says("Secret gcp with the credentials is being deleted: it stays until the instances are gone, and no more are created"))
	m.stop()
	require.NoError(t, c.Delete(t.Context(), vm))
	c.start(newFuse(0))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Empty(t, c.gce.Instances())
	assert.Len(t, c.gce.History(), 1)
	eventually(t, "the end of the Secret", func() bool { return c.secret("gcp") == nil })
}

func TestAPIASecretStaysWhileInstancesNeedIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.IdleTimeout = &metav1.Duration{Duration: 700 * time.Millisecond}
	})
	pod := c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))
	const finalizer = "training.dcnlab.com/instances-of-t4"
	assert.Equal(t, []string{finalizer}, c.secret("gcp").Finalizers)

	c.addSecret("next")
	c.change(vm, func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.CredentialsSecretRef.Name = "next" })
	eventually(t, "the other one to stay instead", func() bool {
		return len(c.secret("gcp").Finalizers) == 0 && len(c.secret("next").Finalizers) == 1
	})

	require.NoError(t, c.Delete(t.Context(), pod))
	c.await(vm, "no instance", c.agree(0))
	eventually(t, "none to be needed", func() bool {
		_, named := c.now(vm).Annotations[spotv1alpha1.AnnotationCredentialsSecret]
		return len(c.secret("next").Finalizers) == 0 && !named
	})
}

// The Secret stayed for the instances, and these stayed planned until it would be there again.
func TestAPIASecretDoesNotWaitForInstancesThatWereNeverAskedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	secret := c.secret("gcp")
	secret.Finalizers = []string{finalizerOf("t4")}
	require.NoError(t, c.Update(t.Context(), secret))
	planned := c.now(vm)
	planned.Finalizers = []string{spotv1alpha1.FinalizerInstances}
	metav1.SetMetaDataAnnotation(&planned.ObjectMeta, spotv1alpha1.AnnotationCredentialsSecret, "gcp")
	require.NoError(t, c.Update(t.Context(), planned))
	planned.Status.Instances = 1
	planned.Status.ProvisionedInstances = []spotv1alpha1.ProvisionedInstance{{
		Name: "t4-x", Zone: vm.Spec.GCP.Zone, State: spotv1alpha1.InstancePlanned, ProvisioningModel: spotv1alpha1.ProvisioningSpot, RequestID: string(uuid.NewUUID()),
	}}
	require.NoError(t, c.Status().Update(t.Context(), planned))
	require.NoError(t, c.Delete(t.Context(), secret))

	c.start(newFuse(0))
	eventually(t, "the end of the Secret", func() bool { return c.secret("gcp") == nil })
	assert.Empty(t, c.gce.History())
}

func TestAPIWithoutTheSecretTheConditionSaysHowToLetGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))
	m.stop()
	secret := c.secret("gcp")
	secret.Finalizers = nil // by force
	require.NoError(t, c.Update(t.Context(), secret))
	require.NoError(t, c.Delete(t.Context(), secret))

	m = c.start(newFuse(0))
	c.await(vm, "the condition", says("or delete the instances in project "+c.gce.Project()+" by hand and then remove the finalizer training.dcnlab.com/instances"))
	m.stop()
	c.addSecret("gcp")
	require.NoError(t, c.Delete(t.Context(), vm))
	c.start(newFuse(0))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Empty(t, c.gce.Instances())
}

// lose takes the key out of a Secret, so that nothing can be asked of the cloud with it.
func (c *cluster) lose(name string) {
	c.t.Helper()
	secret := c.secret(name)
	secret.Data = nil
	require.NoError(c.t, c.Update(c.t.Context(), secret))
}

// letGo removes a SpotInstanceVM with its finalizer, as its message says. Its instances do not matter here.
func (c *cluster) letGo(vm *spotv1alpha1.SpotInstanceVM) {
	c.t.Helper()
	require.NoError(c.t, c.Delete(c.t.Context(), vm))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(c.t, c.Patch(c.t.Context(), vm, patch))
	eventually(c.t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
}

func TestAPIASecretIsReleasedWithASpotInstanceVMThatIsLetGoByHand(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))
	m.stop()
	c.lose("gcp")

	c.start(newFuse(0))
	c.await(vm, "the condition", says("remove the finalizer training.dcnlab.com/instances, and training.dcnlab.com/instances-of-t4 of Secret gcp"))
	c.letGo(vm)
	eventually(t, "the Secret to be released", func() bool { return len(c.secret("gcp").Finalizers) == 0 })
}

// No manager saw the end: it is found when the Secret is read for another SpotInstanceVM, and for a new one of the same name.
func TestAPIASecretIsReleasedAfterASpotInstanceVMWasLetGoWithoutAManager(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"l4", "t4"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			m := c.start(newFuse(0))
			vm := c.vm("t4")
			c.pod("t4", "bert", 0)
			c.await(vm, "a ready instance", c.agree(1))
			m.stop()
			c.lose("gcp")
			c.letGo(vm)
			require.Len(t, c.secret("gcp").Finalizers, 1)
			require.NoError(t, c.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(c.namespace)))

			c.vm(next)
			c.start(newFuse(0))
			eventually(t, "the Secret to be released", func() bool { return len(c.secret("gcp").Finalizers) == 0 })
		})
	}
}
