package child_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var server = apiserver.New()

func TestMain(m *testing.M) { server.Main(m) }

// cluster is a namespace with an owner of children.
type cluster struct {
	client.WithWatch
	child.Writer
	owner     *corev1.ConfigMap
	namespace string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	api, err := client.NewWithWatch(server.Config(t), client.Options{Scheme: clientgoscheme.Scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "child-"}}
	require.NoError(t, api.Create(t.Context(), namespace))
	c := &cluster{WithWatch: api, Writer: child.Writer{Client: api, Direct: api}, namespace: namespace.Name}
	c.owner = c.newOwner(t)
	return c
}

func (c *cluster) newOwner(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: c.namespace}}
	require.NoError(t, c.WithWatch.Create(t.Context(), owner))
	return owner
}

func (c *cluster) child(owner *corev1.ConfigMap) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "child", Namespace: c.namespace},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 1}}},
	}
	if owner != nil {
		service.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	}
	return service
}

func TestAChildIsCreatedOnce(t *testing.T) {
	c := newCluster(t)
	existing, err := c.Writer.Create(t.Context(), c.owner, c.child(c.owner))
	require.NoError(t, err)
	assert.Nil(t, existing)
	existing, err = c.Writer.Create(t.Context(), c.owner, c.child(c.owner))
	require.NoError(t, err)
	require.NotNil(t, existing)
	assert.NotEmpty(t, existing.GetUID())
}

func TestAnObjectOfTheSameNameStaysAsItIs(t *testing.T) {
	for name, test := range map[string]struct {
		existing func(*cluster) *corev1.Service
		want     func(*testing.T, error)
	}{
		"of another owner": {func(c *cluster) *corev1.Service { return c.child(nil) }, func(t *testing.T, err error) {
			var refusal *child.Refusal
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, child.Refusal{Reason: reasons.ObjectConflict, Message: "Service child exists and does not belong to this ConfigMap: " +
				"delete or rename it, or give the ConfigMap another name"}, *refusal)
			assert.False(t, refusal.Permanent())
		}},
		"of an earlier owner of the same name": {func(c *cluster) *corev1.Service {
			earlier := c.owner.DeepCopy()
			earlier.UID = "earlier"
			return c.child(earlier)
		}, func(t *testing.T, err error) { assert.ErrorIs(t, err, child.ErrLeftover) }},
		"of the owner, but being deleted": {func(c *cluster) *corev1.Service {
			deleted := c.child(c.owner)
			deleted.Finalizers = []string{"example.com/stay"}
			return deleted
		}, func(t *testing.T, err error) { assert.ErrorIs(t, err, child.ErrLeftover) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			existing := test.existing(c)
			require.NoError(t, c.WithWatch.Create(t.Context(), existing))
			if len(existing.Finalizers) > 0 {
				require.NoError(t, c.WithWatch.Delete(t.Context(), existing))
			}
			_, err := c.Writer.Create(t.Context(), c.owner, c.child(c.owner))
			test.want(t, err)
		})
	}
}

func TestOnlyTheObjectThatWasSeenIsChanged(t *testing.T) {
	c := newCluster(t)
	seen := c.child(c.owner)
	require.NoError(t, c.WithWatch.Create(t.Context(), seen))
	later := seen.DeepCopy()
	later.UID = "another"

	require.NoError(t, c.Writer.Delete(t.Context(), later), "another object of the name")
	require.NoError(t, c.Merge(t.Context(), later, child.Labels(map[string]string{"a": "b"})))
	var is corev1.Service
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(seen), &is))
	assert.Empty(t, is.Labels)

	require.NoError(t, c.Merge(t.Context(), seen, child.Labels(map[string]string{"a": "b"})))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(seen), &is))
	assert.Equal(t, map[string]string{"a": "b"}, is.Labels)
	require.NoError(t, c.Writer.Delete(t.Context(), seen))
	require.NoError(t, c.Writer.Delete(t.Context(), seen), "an object that is gone")
	require.NoError(t, c.Merge(t.Context(), seen, child.Labels(map[string]string{"a": "b"})))
}

func TestRefusals(t *testing.T) {
	forbidden := func(text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: text}}
	}
	for name, test := range map[string]struct {
		err       error
		reason    string
		message   string
		permanent bool
	}{
		"Pod Security": {forbidden(`violates PodSecurity "restricted:latest"`), reasons.PodSecurityViolation, "correct the security context", true},
		"quota":        {forbidden("exceeded quota: q, requested: pods=1"), reasons.ResourceQuotaExceeded, "free or raise the quota", false},
		"policy":       {forbidden("denied by policy"), reasons.Forbidden, "the API server refuses Service child: denied by policy", false},
		"invalid": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid, Message: "spec.x is bad"}},
			reasons.InvalidSpec, "the API server refuses Service child: spec.x is bad", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			_, err := c.refusing(test.err).Create(t.Context(), c.owner, c.child(c.owner))
			var refusal *child.Refusal
			require.ErrorAs(t, err, &refusal)
			assert.Equal(t, test.reason, refusal.Reason)
			assert.Contains(t, refusal.Error(), test.message)
			assert.Equal(t, test.permanent, refusal.Permanent())
		})
	}
	c := newCluster(t)
	_, err := c.refusing(errors.New("no route to host")).Create(t.Context(), c.owner, c.child(c.owner))
	assert.EqualError(t, err, "create Service child: no route to host")
	_, err = c.refusing(&apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}}).Create(t.Context(), c.owner, c.child(c.owner))
	assert.NoError(t, err, "the owner goes with its namespace")
}

// refusing is a writer whose creations fail.
func (c *cluster) refusing(err error) child.Writer {
	return child.Writer{Direct: c.WithWatch, Client: interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return err },
	})}
}

func TestRetryAfter(t *testing.T) {
	after, ok := child.RetryAfter(child.ErrLeftover)
	assert.True(t, ok)
	assert.Equal(t, 500*time.Millisecond, after)
	_, ok = child.RetryAfter(apierrors.NewConflict(corev1.Resource("pods"), "x", nil))
	assert.True(t, ok)
	_, ok = child.RetryAfter(errors.New("else"))
	assert.False(t, ok)
}

func TestKeepStripsPods(t *testing.T) {
	full := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"kept": "1", "other": "2"}, Finalizers: []string{"f"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", HostIP: "10.1.0.1", StartTime: ptr.To(metav1.Now()),
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "i", ImageID: "id", Ready: true}, {Name: "side"}},
		},
	}
	strip := func(keep child.Keep) *corev1.Pod {
		bare, err := keep.Pods()(full.DeepCopy())
		require.NoError(t, err)
		return bare.(*corev1.Pod)
	}
	least := strip(child.Keep{})
	assert.Equal(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"l": "1"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: full.Status.StartTime,
			Conditions:        []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "i"}, {Name: "side"}},
		},
	}, least)
	most := strip(child.Keep{Annotations: []string{"kept"}, Scheduled: true, Readiness: true})
	assert.Equal(t, map[string]string{"kept": "1"}, most.Annotations)
	assert.Len(t, most.Status.Conditions, 3)
	assert.Equal(t, "10.0.0.1", most.Status.PodIP)
	assert.Len(t, most.Status.ContainerStatuses, 2)
	assert.True(t, most.Status.ContainerStatuses[0].Ready)

	full.Status.Phase = corev1.PodFailed
	full.Status.Conditions = []corev1.PodCondition{{Type: podend.ConditionEnded, Status: corev1.ConditionTrue, Reason: "Succeeded"}}
	assert.Equal(t, corev1.PodSucceeded, strip(child.Keep{}).Status.Phase, "how a sidecar ended that was told to does not matter")
	full.Status.ContainerStatuses[1].State.Running = &corev1.ContainerStateRunning{}
	assert.Equal(t, corev1.PodRunning, strip(child.Keep{}).Status.Phase)
}
