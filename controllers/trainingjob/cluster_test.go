package trainingjob

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// patience bounds every wait for the manager.
const patience = 3 * time.Minute

// cluster is a namespace of a real API server in which the test plays the Job controller, the kubelet and the garbage
// collector.
type cluster struct {
	client.Client

	t         *testing.T
	config    *rest.Config
	namespace string
	// agentPort is where a test plays the checkpoint agent.
	agentPort int32
	// admits has the managers admit jobs with an AIJobQueue.
	admits bool
	// wrap the managers' requests.
	wrap []transport.WrapperFunc
	// log is where the managers' controllers log to; nowhere by default.
	log logr.Logger
	// everywhere has the managers watch all namespaces, as most do.
	everywhere bool
	// ahead is how much later it is for the managers.
	ahead time.Duration
}

// lateClock is a clock for managers for which it is later.
type lateClock struct {
	clock.RealClock

	ahead time.Duration
}

func (l lateClock) Now() time.Time                  { return l.RealClock.Now().Add(l.ahead) }
func (l lateClock) Since(t time.Time) time.Duration { return l.Now().Sub(t) }

func newCluster(t *testing.T) *cluster {
	t.Helper()
	t.Parallel() // each cluster is a namespace of its own
	return newExclusiveCluster(t)
}

// newExclusiveCluster is newCluster for a test that others must not run beside.
func newExclusiveCluster(t *testing.T) *cluster {
	t.Helper()
	config := api.Config(t)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &cluster{Client: c, t: t, config: config, namespace: namespace.Name, log: logr.Discard()}
}

// manager is a manager that runs.
type manager struct {
	*crash.Traffic

	t        *testing.T
	reported chan event.TypedGenericEvent[types.NamespacedName]
	registry *prometheus.Registry
	// reconciler can be called by itself.
	reconciler *Reconciler
	stop       func()
}

// start runs a manager for the cluster, set up like the real one. It crashes at the cut; nil for never.
func (c *cluster) start(at *crash.Cut) *manager {
	c.t.Helper()
	m := &manager{
		Traffic: &crash.Traffic{Cut: at}, t: c.t, registry: prometheus.NewRegistry(),
		reported: make(chan event.TypedGenericEvent[types.NamespacedName], 100),
	}
	caches := cache.Options{DefaultNamespaces: map[string]cache.Config{c.namespace: {}}, ByObject: CachedObjects()}
	if c.everywhere {
		caches.DefaultNamespaces = nil
	}
	mgr := managers.NewLogging(c.t, c.log, c.config, c.Scheme(), caches, append(c.wrap, m.Wrap)...)
	scraper := progress.NewScraper(progress.ScraperOptions{
		Interval: 200 * time.Millisecond,
		Changed: func(job types.NamespacedName) {
			select {
			case m.reported <- event.TypedGenericEvent[types.NamespacedName]{Object: job}:
			case <-mgr.Context.Done():
			}
		},
	})
	require.NoError(c.t, mgr.Add(scraper))
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: lateClock{ahead: c.ahead},
		Recorder: mgr.GetEventRecorder("spot-training-operator"), Progress: scraper,
		Metrics:  metrics.NewTrainingJobs(m.registry, 10),
		Settings: build.Settings{WorkerImage: "worker:1", AgentImage: "agent:1", AgentPort: c.agentPort},
	}
	if c.admits {
		decider := queueing.New(mgr, nil)
		decider.Add(Source(reconciler.Settings, queueing.PriorityClasses(mgr.GetCache()), queueing.RuntimeClasses(mgr.GetAPIReader())))
		require.NoError(c.t, mgr.Add(decider))
		reconciler.Admission = decider
	}
	m.reconciler = reconciler
	require.NoError(c.t, reconciler.SetupWithManager(mgr.Context, mgr, Options{Concurrency: 2, Reported: m.reported}))
	m.stop = mgr.Run()
	return m
}

// lookAgain has the manager reconcile a job so many times for no reason.
func (m *manager) lookAgain(job *mlv1.TrainingJob, times int) {
	m.t.Helper()
	for range times {
		before := m.reconciliations()
		m.reported <- event.TypedGenericEvent[types.NamespacedName]{Object: client.ObjectKeyFromObject(job)}
		eventually(m.t, "another reconciliation", func() bool { return m.reconciliations() > before })
	}
}

func (m *manager) reconciliations() (sum float64) {
	families, err := m.registry.Gather()
	require.NoError(m.t, err)
	for _, family := range families {
		if family.GetName() == "trainingjob_reconciliation_total" {
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// submit creates a job and returns it as the API server has it.
func (c *cluster) submit(b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	c.t.Helper()
	job := b.Namespace(c.namespace).ToCreate()
	require.NoError(c.t, c.Create(c.t.Context(), job))
	return job
}

// await waits until a job is as it should be, and returns it.
func (c *cluster) await(job *mlv1.TrainingJob, what string, is func(*mlv1.TrainingJob) bool) *mlv1.TrainingJob {
	c.t.Helper()
	var now mlv1.TrainingJob
	err := wait.PollUntilContextTimeout(c.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(job), &now)
		return err == nil && is(&now), err
	})
	short := outlineOf(desired{status: now.Status})
	require.NoError(c.t, err, "the job is not %s: it is %s for %s, with conditions %v, restarts %d, failure %q",
		what, short.State, short.Reason, short.Conditions, short.Restarts, short.FailureReason)
	return &now
}

// state is a condition for await.
func state(want mlv1.State) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool { return job.Status.State == want }
}

// workers waits for the Indexed Job of an attempt, for which the pods of the one before must be gone.
func (c *cluster) workers(job *mlv1.TrainingJob, attempt int32) *batchv1.Job {
	c.t.Helper()
	var workers batchv1.Job
	eventually(c.t, fmt.Sprintf("the Job of attempt %d", attempt), func() bool {
		c.collectGarbage()
		err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: build.WorkersName(job)}, &workers)
		return err == nil && build.AttemptOf(&workers) == attempt
	})
	return &workers
}

// startPods creates the pods of a Job as the Job controller does.
func (c *cluster) startPods(workers *batchv1.Job) []*corev1.Pod {
	c.t.Helper()
	var pods []*corev1.Pod
	for index := range int(*workers.Spec.Completions) {
		replica := fmt.Sprint(index)
		pod := &corev1.Pod{ObjectMeta: *workers.Spec.Template.ObjectMeta.DeepCopy(), Spec: *workers.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.GenerateName = c.namespace, workers.Name+"-"+replica+"-"
		pod.Labels[batchv1.JobCompletionIndexAnnotation] = replica
		pod.Annotations[batchv1.JobCompletionIndexAnnotation] = replica
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(workers, batchv1.SchemeGroupVersion.WithKind("Job"))}
		require.NoError(c.t, c.Create(c.t.Context(), pod))
		pods = append(pods, pod)
	}
	return pods
}

// run makes pods run and be ready as the kubelet does.
func (c *cluster) run(pods ...*corev1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		c.become(pod, corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: containerStatus(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
		})
	}
}

// end ends pods with an exit code and a termination message.
func (c *cluster) end(code int32, message string, pods ...*corev1.Pod) {
	c.t.Helper()
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	for _, pod := range pods {
		c.become(pod, corev1.PodStatus{
			Phase: phase,
			ContainerStatuses: containerStatus(corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.Now()},
			}),
		})
	}
}

func containerStatus(state corev1.ContainerState) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: build.WorkerContainer, Image: "worker:1", State: state}}
}

func (c *cluster) become(pod *corev1.Pod, status corev1.PodStatus) {
	c.t.Helper()
	next := pod.DeepCopy()
	next.Status = status
	require.NoError(c.t, c.Status().Patch(c.t.Context(), next, client.MergeFrom(pod)))
}

// collectGarbage deletes the pods of Jobs that no longer exist, as the garbage collector does.
func (c *cluster) collectGarbage() {
	c.t.Helper()
	var jobs batchv1.JobList
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, client.InNamespace(c.namespace)))
	require.NoError(c.t, c.List(c.t.Context(), &jobs, client.InNamespace(c.namespace)))
	alive := map[types.UID]bool{}
	for i := range jobs.Items {
		alive[jobs.Items[i].UID] = true
	}
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && !alive[owner.UID] {
			err := c.Delete(c.t.Context(), &pods.Items[i], client.GracePeriodSeconds(0))
			require.NoError(c.t, client.IgnoreNotFound(err))
		}
	}
}

// gone waits until an object no longer exists.
func (c *cluster) gone(object client.Object) {
	c.t.Helper()
	uid := object.GetUID()
	eventually(c.t, "the end of "+titleOf(object), func() bool {
		err := c.Get(c.t.Context(), client.ObjectKeyFromObject(object), object)
		return apierrors.IsNotFound(err) || (err == nil && object.GetUID() != uid)
	})
}

// versions are the resource versions of a job, its children and its pods.
func (c *cluster) versions(job *mlv1.TrainingJob) map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&mlv1.TrainingJobList{}, &batchv1.JobList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{},
		&corev1.PersistentVolumeClaimList{}, &corev1.PodList{},
	} {
		require.NoError(c.t, c.List(c.t.Context(), list, client.InNamespace(job.Namespace)))
		visit(c.t, list, func(object client.Object) {
			all[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
		})
	}
	return all
}

func visit(t *testing.T, list client.ObjectList, each func(client.Object)) {
	t.Helper()
	require.NoError(t, meta.EachListItem(list, func(item runtime.Object) error {
		each(item.(client.Object))
		return nil
	}))
}
