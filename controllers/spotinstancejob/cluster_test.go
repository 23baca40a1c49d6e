package spotinstancejob

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// cluster is a namespace of a real API server in which the test plays the Job controller, the scheduler, kubelets, the
// garbage collector and the checkpoint agent.
type cluster struct {
	client.Client

	t         *testing.T
	config    *rest.Config
	namespace string
	// version of CheckpointBackups that the agent serves; none when empty. deaf lets it ignore them.
	version string
	deaf    bool
	// discovers has managers find out themselves what is served.
	discovers bool
	// dead are nodes that no longer answer.
	dead map[string]bool
	// full lets no pod be placed.
	full bool
	// started are the images of the pods that were created, by Job.
	started map[string]string
}

func newCluster(t *testing.T, version string, nodes ...string) *cluster {
	t.Helper()
	return newClusterOf(t, api.Config(t), version, nodes...)
}

func newClusterOf(t *testing.T, config *rest.Config, version string, nodes ...string) *cluster {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	sim := &cluster{
		Client: c, t: t, config: config, namespace: namespace.Name, version: version, dead: map[string]bool{}, started: map[string]string{},
	}
	for _, name := range nodes {
		sim.addNode(name)
	}
	return sim
}

// node is the name of a node of this test: nodes have no namespace.
func (c *cluster) node(name string) string { return c.namespace + "-" + name }

func (c *cluster) addNode(name string) {
	c.t.Helper()
	is := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node(name), Labels: map[string]string{"test": c.namespace}}}
	require.NoError(c.t, c.Create(c.t.Context(), is))
	is.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(c.t, c.Status().Update(c.t.Context(), is))
	c.t.Cleanup(func() {
		_ = c.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node(name)}})
	})
}

// manager is a manager that runs.
type manager struct {
	*crash.Traffic

	events *events.FakeRecorder
	stop   func()
}

// start runs a manager for the cluster, set up like the real one. It crashes at the cut; nil for never.
func (c *cluster) start(at *crash.Cut) *manager { return c.startAt(at, clock.RealClock{}) }

func (c *cluster) startAt(at *crash.Cut, now clock.PassiveClock) *manager {
	c.t.Helper()
	m := &manager{Traffic: &crash.Traffic{Cut: at}, events: events.NewFakeRecorder(1000)}
	mgr := managers.New(c.t, c.config, c.Scheme(), cache.Options{
		DefaultNamespaces: map[string]cache.Config{c.namespace: {}}, ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: nodenotice.Trim}},
	}, m.Wrap)
	reconciler := &Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: now, Recorder: m.events,
		Metrics: metrics.NewSpotInstanceJobs(prometheus.NewRegistry()),
	}
	if !c.discovers {
		reconciler.Backups = checkpointbackup.NewClient(mgr.GetCache(), mgr.GetClient(), mgr.GetCache(), discovery(c.version), clock.RealClock{})
	}
	require.NoError(c.t, reconciler.SetupWithManager(mgr.Context, mgr, Options{Concurrency: 2, Namespaces: []string{c.namespace}}))
	m.stop = mgr.Run()
	return m
}

// until lets the cluster go on until something has happened.
func (c *cluster) until(what string, happened func() bool) {
	c.t.Helper()
	await(c.t, what, func() bool {
		c.step()
		return happened()
	})
}

// step does what the parts of a cluster do that the test plays.
func (c *cluster) step() {
	c.t.Helper()
	jobs := map[types.UID]*batchv1.Job{}
	var list batchv1.JobList
	require.NoError(c.t, c.List(c.t.Context(), &list, client.InNamespace(c.namespace)))
	for i := range list.Items {
		jobs[list.Items[i].UID] = &list.Items[i]
	}
	for _, pod := range c.pods() {
		owner := metav1.GetControllerOf(&pod)
		job := jobs[owner.UID]
		switch {
		case job == nil:
			c.end(&pod)
		case ptr.Deref(job.Spec.Suspend, false) && !podend.IsEnded(&pod):
			c.end(&pod)
		}
	}
	for _, job := range jobs {
		c.control(job)
	}
	c.takeCheckpoints()
}

func (c *cluster) pods() []corev1.Pod {
	c.t.Helper()
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, client.InNamespace(c.namespace)))
	return pods.Items
}

// end deletes a pod. Without a kubelet that answers it stays.
func (c *cluster) end(pod *corev1.Pod) {
	c.t.Helper()
	if c.dead[pod.Spec.NodeName] {
		if pod.DeletionTimestamp == nil {
			require.NoError(c.t, client.IgnoreNotFound(c.Delete(c.t.Context(), pod, client.GracePeriodSeconds(30))))
		}
		return
	}
	require.NoError(c.t, client.IgnoreNotFound(c.Delete(c.t.Context(), pod, client.GracePeriodSeconds(0))))
}

// control plays the Job controller for one Job, and the scheduler and kubelet for its pod.
func (c *cluster) control(job *batchv1.Job) {
	c.t.Helper()
	if isJobEnded(job) || job.DeletionTimestamp != nil {
		return
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		if jobCondition(job, batchv1.JobSuspended) == nil {
			c.patchJob(job, func(status *batchv1.JobStatus) {
				status.StartTime = nil
				status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue})
			})
		}
		return
	}
	for _, pod := range c.pods() {
		if owner := metav1.GetControllerOf(&pod); owner.UID == job.UID {
			if pod.Spec.NodeName == "" && !c.full {
				c.place(&pod)
			}
			return
		}
	}
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.GenerateName = c.namespace, job.Name+"-"
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	c.onlyOne(pod)
	require.NoError(c.t, c.Create(c.t.Context(), pod))
	c.started[job.Name] = pod.Spec.Containers[0].Image
	if c.full {
		c.patchPod(pod, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "no room"},
		}})
		return
	}
	c.place(pod)
}

// onlyOne fails the test when a pod is made while another of its replica may run.
func (c *cluster) onlyOne(pod *corev1.Pod) {
	c.t.Helper()
	for _, other := range c.pods() {
		if other.Labels[spotv1alpha1.LabelReplica] == pod.Labels[spotv1alpha1.LabelReplica] && !podend.IsEnded(&other) {
			require.Fail(c.t, "two pods of one replica", "%s is still there when another is made", other.Name)
		}
	}
}

// place puts a pod onto a node without a notice that has no pod yet, and runs it.
func (c *cluster) place(pod *corev1.Pod) {
	c.t.Helper()
	taken := map[string]bool{}
	for _, other := range c.pods() {
		taken[other.Spec.NodeName] = taken[other.Spec.NodeName] || !podend.IsEnded(&other)
	}
	var nodes corev1.NodeList
	require.NoError(c.t, c.List(c.t.Context(), &nodes, client.MatchingLabels{"test": c.namespace}))
	for i := range nodes.Items {
		is := &nodes.Items[i]
		if _, noticed := nodenotice.FromNode(is, time.Now()); noticed || taken[is.Name] || c.dead[is.Name] {
			continue
		}
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: is.Name}}
		require.NoError(c.t, c.SubResource("binding").Create(c.t.Context(), pod, binding))
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(pod), pod))
		c.patchPod(pod, corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now()),
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: pod.Spec.Containers[0].Name, Image: "x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		})
		return
	}
}

func (c *cluster) patchPod(pod *corev1.Pod, status corev1.PodStatus) {
	c.t.Helper()
	next := pod.DeepCopy()
	next.Status = status
	require.NoError(c.t, client.IgnoreNotFound(c.Status().Patch(c.t.Context(), next, client.MergeFrom(pod))))
}

func (c *cluster) patchJob(job *batchv1.Job, edit func(*batchv1.JobStatus)) {
	c.t.Helper()
	next := job.DeepCopy()
	edit(&next.Status)
	require.NoError(c.t, client.IgnoreNotFound(c.Status().Patch(c.t.Context(), next, client.MergeFrom(job))))
}

// backups are the CheckpointBackups, as the agent sees them.
func (c *cluster) backups() []unstructured.Unstructured {
	c.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: checkpointbackup.GroupKind.Group, Version: c.version, Kind: checkpointbackup.GroupKind.Kind + "List"})
	require.NoError(c.t, c.List(c.t.Context(), list, client.InNamespace(c.namespace)))
	return list.Items
}

// takeCheckpoints plays the agent.
func (c *cluster) takeCheckpoints() {
	c.t.Helper()
	if c.version == "" || c.deaf {
		return
	}
	for _, object := range c.backups() {
		backup := checkpointbackup.Decode(&object)
		if backup.Status.Phase.Ended() {
			continue
		}
		status := checkpointbackup.Status{Phase: checkpointbackup.Completed, Completed: time.Now(), Images: backup.Spec.Containers}
		object.Object["status"] = checkpointbackup.EncodeStatus(status)
		err := c.Status().Update(c.t.Context(), &object)
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			require.NoError(c.t, err)
		}
	}
}

// submit creates a job.
func (c *cluster) submit(b *builders.SpotInstanceJobBuilder) *spotv1alpha1.SpotInstanceJob {
	c.t.Helper()
	job := b.Namespace(c.namespace).ToCreate()
	require.NoError(c.t, c.Create(c.t.Context(), job))
	return job
}

// reach lets the cluster go on until a job is as it should be, and reads it.
func (c *cluster) reach(job *spotv1alpha1.SpotInstanceJob, what string, is func(*spotv1alpha1.SpotInstanceJobStatus) bool) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("it is %s: %v, %v", job.Status.Phase, job.Status.JobStatuses, conditionsOf(job.Status))
		}
	}()
	c.until("the job being "+what, func() bool {
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(job), job))
		return is(&job.Status)
	})
}

func phase(want spotv1alpha1.JobPhase) func(*spotv1alpha1.SpotInstanceJobStatus) bool {
	return func(status *spotv1alpha1.SpotInstanceJobStatus) bool { return status.Phase == want }
}

// runs says whether so many replicas run.
func runs(n int32) func(*spotv1alpha1.SpotInstanceJobStatus) bool {
	return func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return status.Phase == spotv1alpha1.JobRunning && status.ActiveReplicas == n && len(status.JobStatuses) == int(n)
	}
}

// podOf is the pod of a replica.
func (c *cluster) podOf(index int) *corev1.Pod {
	c.t.Helper()
	for _, pod := range c.pods() {
		if pod.Labels[spotv1alpha1.LabelReplica] == fmt.Sprint(index) && !podend.IsEnded(&pod) {
			return &pod
		}
	}
	require.Fail(c.t, "no pod of replica", index)
	return nil
}

// succeedIn ends the pod of a replica well, and its Job.
func (c *cluster) succeedIn(index int) {
	c.t.Helper()
	pod := c.podOf(index)
	c.patchPod(pod, corev1.PodStatus{Phase: corev1.PodSucceeded})
	c.finish(pod, func(status *batchv1.JobStatus, now metav1.Time) {
		status.CompletionTime, status.Succeeded = &now, 1
		status.Conditions = append(status.Conditions,
			batchv1.JobCondition{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
			batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now})
	})
}

// failIn ends the pod of a replica with an exit code, and its Job.
func (c *cluster) failIn(index int) {
	c.t.Helper()
	pod := c.podOf(index)
	c.patchPod(pod, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "train", Image: "x", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "CUDA error"}},
	}}})
	c.finish(pod, func(status *batchv1.JobStatus, now metav1.Time) {
		status.Failed = 1
		for _, kind := range []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed} {
			status.Conditions = append(status.Conditions, batchv1.JobCondition{
				Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded, LastTransitionTime: now,
			})
		}
	})
}

func (c *cluster) finish(pod *corev1.Pod, edit func(*batchv1.JobStatus, metav1.Time)) {
	c.t.Helper()
	var job batchv1.Job
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: metav1.GetControllerOf(pod).Name}, &job))
	now := metav1.Now().Rfc3339Copy()
	c.patchJob(&job, func(status *batchv1.JobStatus) {
		status.StartTime = &now
		edit(status, now)
	})
}

// jobNames are the Jobs that are there.
func (c *cluster) jobNames() []string {
	c.t.Helper()
	var list batchv1.JobList
	require.NoError(c.t, c.List(c.t.Context(), &list, client.InNamespace(c.namespace)))
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func key(object client.Object) client.ObjectKey { return client.ObjectKeyFromObject(object) }
