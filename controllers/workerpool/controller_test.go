package workerpool

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// patience bounds every wait.
const patience = 30 * time.Second

// depthsOf is a store that only the depths of queues are read from.
type depthsOf struct {
	jobs.Store

	lock   sync.Mutex
	queues map[string]jobs.QueueStats
}

func (d *depthsOf) Queues(context.Context) ([]jobs.QueueStats, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	var all []jobs.QueueStats
	for _, q := range d.queues {
		all = append(all, q)
	}
	return all, nil
}

func (d *depthsOf) Audit(context.Context, jobs.AuditEntry) error { return nil }

// world is a namespace of the operator with the job service's REST interface, on a cluster that the tests share. The interface asks
// the API server whose tokens it gets, and what they are good for.
type world struct {
	client.Client

	t         *testing.T
	namespace string
	store     *depthsOf
	service   *httptest.Server
	queue     *aiplatformv1alpha1.AIJobQueue
	// authorities of the service's certificate; nil: it is served by plain HTTP.
	authorities func() (string, bool)
}

func newWorld(t *testing.T, workers *aiplatformv1alpha1.WorkerPool) *world {
	t.Helper()
	c, err := client.NewWithWatch(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "operator-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	require.NoError(t, c.Create(t.Context(), namespace))
	w := &world{Client: c, t: t, namespace: namespace.Name, store: &depthsOf{queues: map[string]jobs.QueueStats{}}}
	authenticator, err := auth.New(auth.Options{Reviewer: reviews(t)})
	require.NoError(t, err)
	w.service = httptest.NewServer(rest.New(rest.Options{
		Store: w.store, Authenticator: authenticator, Authorizer: reviews(t), Log: logr.Discard(),
	}))
	t.Cleanup(w.service.Close)
	// The manager's own account, with as much of its role as it needs to be asked for.
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: ManagerName}})
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-manager"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"aiplatform.example.com"}, Resources: []string{"aijobqueues"}, Verbs: []string{"list"}}},
	}
	w.create(role)
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: ManagerName}},
	})
	w.queue = &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: "q-" + w.namespace}}
	w.queue.Spec.Workers = workers
	w.create(w.queue)
	return w
}

// create an object that is deleted after the test.
func (w *world) create(object client.Object) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), object))
	w.t.Cleanup(func() { assert.NoError(w.t, client.IgnoreNotFound(w.Delete(context.Background(), object))) })
}

func (w *world) says(waiting, running int) {
	w.store.lock.Lock()
	defer w.store.lock.Unlock()
	w.store.queues[w.queue.Name] = jobs.QueueStats{
		Name: w.queue.Name, Depth: waiting + 5, Processing: running + 5, PoolDepth: waiting, PoolProcessing: running,
	}
}

func (w *world) settings() Settings {
	return Settings{Namespace: w.namespace, WorkerImage: "worker:1", JobServiceURL: w.service.URL, Authorities: w.authorities}
}

// start the controller, as the manager does; it ends with the test, or by the function returned.
func (w *world) start() (stop func()) {
	w.t.Helper()
	mgr := managers.New(w.t, api.Config(w.t), scheme, cache.Options{ByObject: CachedObjects()})
	r := &Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{}, Settings: w.settings(), Interval: 100 * time.Millisecond,
	}
	require.NoError(w.t, r.SetupWithManager(mgr))
	return mgr.Run()
}

func (w *world) key() client.ObjectKey {
	return client.ObjectKey{Namespace: w.namespace, Name: w.queue.Name + "-workers"}
}

// workers waits until the Deployment is as it should be.
func (w *world) workers(what string, is func(*appsv1.Deployment) bool) *appsv1.Deployment {
	w.t.Helper()
	var d appsv1.Deployment
	require.Eventually(w.t, func() bool { return w.Get(w.t.Context(), w.key(), &d) == nil && is(&d) }, patience, 50*time.Millisecond, what)
	return &d
}

func replicas(n int32) func(*appsv1.Deployment) bool {
	return func(d *appsv1.Deployment) bool { return *d.Spec.Replicas == n }
}

// condition waits until the queue's workers are in a state for a reason.
func (w *world) condition(state metav1.ConditionStatus, reason string) *metav1.Condition {
	w.t.Helper()
	var is *metav1.Condition
	require.Eventually(w.t, func() bool {
		require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(w.queue), w.queue))
		is = meta.FindStatusCondition(w.queue.Status.Conditions, "WorkersReady")
		return is != nil && is.Status == state && is.Reason == reason
	}, patience, 50*time.Millisecond, "WorkersReady is %s for %s; it is %+v", state, reason, is)
	return is
}

// plays the Deployment controller and the kubelet: so many pods are ready.
func (w *world) ready(d *appsv1.Deployment, n int32) {
	w.t.Helper()
	d.Status = appsv1.DeploymentStatus{Replicas: *d.Spec.Replicas, ReadyReplicas: n, ObservedGeneration: d.Generation}
	require.NoError(w.t, w.Status().Update(w.t.Context(), d))
}

func (w *world) changeQueue(change func()) {
	w.t.Helper()
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKeyFromObject(w.queue), w.queue))
	before := w.queue.DeepCopy()
	change()
	require.NoError(w.t, w.Patch(w.t.Context(), w.queue, client.MergeFrom(before)))
}

// mayWork asks what the job service asks.
func (w *world) mayWork(queue string) bool {
	w.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + w.namespace + ":" + w.key().Name,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "aiplatform.example.com", Resource: "aijobqueues", Name: queue, Verb: "work",
		},
	}}
	require.NoError(w.t, w.Create(w.t.Context(), review))
	return review.Status.Allowed
}

func TestWorkersComeAndGoWithTheirTasks(t *testing.T) {
	w := newWorld(t, pool(0, 5, 2, 1))
	w.start()
	w.workers("there are none at first", replicas(0))
	w.condition(metav1.ConditionTrue, "ScaledToZero")

	w.says(3, 1)
	d := w.workers("two tasks for each", replicas(2))
	w.condition(metav1.ConditionFalse, "WorkersStarting")
	assert.Equal(t, &aiplatformv1alpha1.WorkerPoolStatus{Replicas: 2, WaitingTasks: 3, RunningTasks: 1}, w.queue.Status.Workers)
	w.ready(d, 2)
	w.condition(metav1.ConditionTrue, "WorkersReady")
	assert.True(t, metav1.IsControlledBy(d, w.queue), "deleting the queue removes them")
	assert.True(t, w.mayWork(w.queue.Name))
	assert.False(t, w.mayWork("another"), "of no other queue")

	w.says(100, 4)
	w.workers("no more than allowed", replicas(5))
	w.says(0, 0)
	w.workers("back to none", replicas(0))
	w.condition(metav1.ConditionTrue, "ScaledToZero")
}

func TestWorkersAreAdmittedWherePodSecurityIsRestricted(t *testing.T) {
	w := newWorld(t, pool(1, 1, 1, 1))
	w.start()
	d := w.workers("one", replicas(1))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "worker", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec,
	}
	require.NoError(t, w.Create(t.Context(), pod, client.DryRunAll))
	pod.Spec.Containers[0].SecurityContext = nil
	pod.ResourceVersion, pod.UID = "", ""
	require.ErrorContains(t, w.Create(t.Context(), pod, client.DryRunAll), "violates PodSecurity", "the check sees what is refused")
}

func TestAQueueThatWantsNoWorkersAnyMoreHasNothingOfThem(t *testing.T) {
	w := newWorld(t, pool(1, 5, 2, 1))
	w.start()
	w.workers("one", replicas(1))
	w.condition(metav1.ConditionFalse, "WorkersStarting")
	// What others say in the status stays.
	before := w.queue.DeepCopy()
	w.queue.Status.Depth = 7
	meta.SetStatusCondition(&w.queue.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready"})
	require.NoError(t, w.Status().Patch(t.Context(), w.queue, client.MergeFrom(before), client.FieldOwner("spot-training-operator")))

	w.changeQueue(func() { w.queue.Spec.Workers = nil })
	for _, object := range []client.Object{&appsv1.Deployment{}, &corev1.ServiceAccount{}} {
		w.gone(object, w.key())
	}
	for _, object := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		w.gone(object, client.ObjectKey{Name: w.key().Name})
	}
	require.Eventually(t, func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(w.queue), w.queue))
		return w.queue.Status.Workers == nil && meta.FindStatusCondition(w.queue.Status.Conditions, "WorkersReady") == nil
	}, patience, 50*time.Millisecond, "the status says nothing of workers: %+v", w.queue.Status)
	assert.EqualValues(t, 7, w.queue.Status.Depth)
	assert.NotNil(t, meta.FindStatusCondition(w.queue.Status.Conditions, "Ready"))
}

func (w *world) gone(object client.Object, key client.ObjectKey) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return apierrors.IsNotFound(w.Get(w.t.Context(), key, object)) }, patience, 50*time.Millisecond,
		"%T %s is gone", object, key)
}

func TestWorkersMoveToAnotherNamespace(t *testing.T) {
	w := newWorld(t, pool(1, 5, 2, 1))
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	require.NoError(t, w.Create(t.Context(), other))
	w.start()
	old := w.key()
	w.workers("one", replicas(1))
	w.changeQueue(func() { w.queue.Spec.Workers.Namespace = other.Name })
	w.gone(&appsv1.Deployment{}, old)
	w.gone(&corev1.ServiceAccount{}, old)
	w.namespace = other.Name
	w.workers("one there", replicas(1))
	require.Eventually(t, func() bool { return w.mayWork(w.queue.Name) }, patience, 50*time.Millisecond)
}

func TestAStrangersDeploymentIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	labels := map[string]string{"app": "mine"}
	mine := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.key().Name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "mine"}}},
		}},
	}
	w.create(mine)
	w.start()
	w.changeQueue(func() { w.queue.Spec.Workers = pool(1, 5, 2, 1) })
	is := w.condition(metav1.ConditionFalse, "ObjectConflict")
	assert.Contains(t, is.Message, "Deployment "+mine.Name+" exists and does not belong to this AIJobQueue: delete")
	before := mine.ResourceVersion
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(mine), mine))
	assert.Equal(t, before, mine.ResourceVersion)
}

func TestWorkersStayWhenTheJobServiceIsGone(t *testing.T) {
	w := newWorld(t, pool(0, 5, 1, 0))
	w.says(3, 0)
	w.start()
	w.workers("three", replicas(3))
	w.service.Close()
	is := w.condition(metav1.ConditionFalse, "JobServiceUnreachable")
	assert.Contains(t, is.Message, "the number of workers stays 3: "+w.service.URL+" does not answer: dial: connect: connection refused")
	w.workers("three", replicas(3))
}

// The service is asked, and workers are started, once its authorities are known, which the pods get in a ConfigMap.
func TestAJobServiceWithACertificateOfItsOwn(t *testing.T) {
	w := newWorld(t, pool(0, 5, 1, 0))
	w.service = httptest.NewTLSServer(w.service.Config.Handler)
	t.Cleanup(w.service.Close)
	const unknown = ""
	var bundle atomic.Value
	bundle.Store(unknown)
	w.authorities = func() (string, bool) { text := bundle.Load().(string); return text, text != unknown }
	w.says(3, 0)
	w.start()
	is := w.condition(metav1.ConditionFalse, "JobServiceUnreachable")
	assert.Contains(t, is.Message, "the certificate of the job service is not known yet")

	stranger, _, err := certutil.GenerateSelfSignedCertKey("stranger", nil, nil)
	require.NoError(t, err)
	bundle.Store(string(stranger))
	require.Eventually(t, func() bool {
		is := w.condition(metav1.ConditionFalse, "JobServiceUnreachable")
		return strings.Contains(is.Message, "certificate signed by unknown authority")
	}, patience, 20*time.Millisecond)

	own, err := certutil.EncodeCertificates(w.service.Certificate())
	require.NoError(t, err)
	bundle.Store(string(own))
	d := w.workers("three", replicas(3))
	assert.Equal(t, d.Name, d.Spec.Template.Spec.Volumes[0].Projected.Sources[1].ConfigMap.Name)
	trusted := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var configMap corev1.ConfigMap
			return w.Get(t.Context(), w.key(), &configMap) == nil && configMap.Data["ca.crt"] == want
		}, patience, 20*time.Millisecond)
	}
	trusted(string(own))
	both := string(append(stranger, own...))
	bundle.Store(both)
	w.says(4, 0)
	w.workers("four", replicas(4))
	trusted(both)

	w.changeQueue(func() { w.queue.Spec.Workers = nil })
	w.gone(&corev1.ConfigMap{}, w.key())
}

func TestANamespaceThatDoesNotExistIsTold(t *testing.T) {
	w := newWorld(t, &aiplatformv1alpha1.WorkerPool{Namespace: "nowhere"})
	w.start()
	is := w.condition(metav1.ConditionFalse, "PodCreationFailed")
	assert.Contains(t, is.Message, `namespaces "nowhere" not found`)
}

func TestManualChangesAreReverted(t *testing.T) {
	w := newWorld(t, pool(1, 5, 1, 0))
	stop := w.start()
	d := w.workers("one", replicas(1))
	d.Spec.Replicas = ptr.To[int32](4)
	require.NoError(t, w.Update(t.Context(), d))
	w.workers("one again", replicas(1))
	stop()
	role := &rbacv1.ClusterRole{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: w.key().Name}, role))
	role.Rules[0].Verbs = []string{"*"}
	require.NoError(t, w.Update(t.Context(), role))
	w.start()
	require.Eventually(t, func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(role), role))
		return role.Rules[0].Verbs[0] == "work"
	}, patience, 50*time.Millisecond)
}

// What keeps a pod from starting changes nothing in the Deployment: it is found all the same.
func TestThePodsObstacleIsTold(t *testing.T) {
	w := newWorld(t, pool(1, 1, 1, 1))
	w.start()
	d := w.workers("one", replicas(1))
	w.ready(d, 0)
	w.condition(metav1.ConditionFalse, "WorkersStarting")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "worker", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec,
	}
	w.create(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "worker", Image: "worker:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
	}}
	require.NoError(t, w.Status().Update(t.Context(), pod))
	w.condition(metav1.ConditionFalse, "ImagePullFailed")
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	w := newWorld(t, pool(1, 5, 1, 60))
	writes := 0
	counted := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			writes++
			return c.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, object, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	})
	r := &Reconciler{Client: counted, Direct: w.Client, Clock: clock.RealClock{}, Settings: w.settings(), uncached: counted}
	r.begin(w.Client, nil)
	r.depths.learn([]string{w.queue.Name}, map[string]Figures{w.queue.Name: {Waiting: 2}}, nil)
	reconcile := func() {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: w.queue.Name}})
		require.NoError(t, err)
	}
	reconcile()
	assert.Equal(t, 5, writes, "ServiceAccount, ClusterRole, its binding, Deployment, status")
	for range 3 {
		reconcile()
	}
	assert.Equal(t, 5, writes)
	d := w.workers("two", replicas(2))
	before := d.DeepCopy()

	// A manager that starts looks once whether all is as it was, and changes nothing.
	r.begin(w.Client, nil)
	r.depths.learn([]string{w.queue.Name}, map[string]Figures{w.queue.Name: {Waiting: 2}}, nil)
	reconcile()
	reconcile()
	assert.Equal(t, 6, writes)
	assert.Equal(t, before.ResourceVersion, w.workers("two", replicas(2)).ResourceVersion)
}

func TestOtherAnswersAreTold(t *testing.T) {
	token := func(context.Context) (string, error) { return "t", nil }
	for name, test := range map[string]struct {
		status     int
		body, want string
	}{
		"no JSON":         {200, "<html>", "is it the job service?"},
		"no list":         {200, "{}", "is it the job service?"},
		"an older one":    {200, `{"queues":[{"name":"q"}]}`, "does not tell pool_depth and pool_processing of queue q"},
		"it refuses":      {403, `{"error":{"code":"FORBIDDEN","message":"no"}}`, "answers 403 FORBIDDEN: no"},
		"it is not ready": {503, `gone`, "answers 503"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			}))
			defer server.Close()
			_, err := (&JobService{URL: server.URL, Token: token}).Queues(t.Context())
			require.ErrorContains(t, err, test.want)
		})
	}
}
