package trainingjob

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/gang"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// scheduledBy is a job of four workers, of 2 CPUs each, with a scheduler and annotations.
func scheduledBy(scheduler string, annotations map[string]string) *builders.TrainingJobBuilder {
	b := builders.TrainingJob("bert").Workers(4).Spec(func(spec *mlv1.TrainingJobSpec) {
		spec.Scheduling = &mlv1.Scheduling{SchedulerName: scheduler, Priority: "high"}
		spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	})
	return b.Annotations(annotations)
}

func TestWhoStartsTheWorkersTogether(t *testing.T) {
	off, on := ptr.To(false), ptr.To(true)
	for name, test := range map[string]struct {
		job       *builders.TrainingJobBuilder
		gang      *bool
		scheduler string
		named     bool
	}{
		"Kubernetes, where it can, for more than one worker": {scheduledBy("", nil), nil, gang.Kubernetes, false},
		"Kubernetes under the name of its scheduler":         {scheduledBy("default-scheduler", nil), nil, gang.Kubernetes, false},
		"none for one worker":                                {builders.TrainingJob("bert"), nil, "", false},
		"Kubernetes for one worker that asks for it":         {builders.TrainingJob("bert"), on, gang.Kubernetes, false},
		"Volcano by its scheduler":                           {scheduledBy("volcano", nil), nil, gang.Volcano, true},
		"none, though Volcano schedules":                     {scheduledBy("volcano", nil), off, "", false},
		"scheduler-plugins by its scheduler":                 {scheduledBy("scheduler-plugins-scheduler", nil), nil, gang.Coscheduling, true},
		"a scheduler of another name":                        {scheduledBy("mine", nil), nil, "", false},
		"a scheduler of another name, by the annotation": {
			scheduledBy("mine", map[string]string{mlv1.AnnotationGangScheduler: "coscheduling"}), nil, gang.Coscheduling, true,
		},
		"none, by the annotation": {scheduledBy("volcano", map[string]string{mlv1.AnnotationGangScheduler: "none"}), nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			if test.gang != nil {
				if job.Spec.Scheduling == nil {
					job.Spec.Scheduling = &mlv1.Scheduling{}
				}
				job.Spec.Scheduling.Gang = test.gang
			}
			scheduler, named := gang.SchedulerOf(job)
			assert.Equal(t, test.scheduler, scheduler)
			assert.Equal(t, test.named, named)
		})
	}
}

func TestPodGroups(t *testing.T) {
	for name, test := range map[string]struct {
		gang observedGang
		job  *mlv1.TrainingJob
		spec string
		pod  func(*testing.T, *corev1.PodTemplateSpec)
	}{
		"of Volcano": {
			observedGang{scheduler: gang.Volcano, version: "v1beta1", named: true},
			scheduledBy("volcano", map[string]string{"scheduling.volcano.sh/queue-name": "research"}).Obj(),
			`{"minMember": 4, "minResources": {"cpu": "8"}, "priorityClassName": "high", "queue": "research"}`,
			func(t *testing.T, pod *corev1.PodTemplateSpec) {
				assert.Equal(t, "bert-training", pod.Annotations["scheduling.k8s.io/group-name"])
				assert.Equal(t, "volcano", pod.Spec.SchedulerName)
			},
		},
		"of scheduler-plugins": {
			observedGang{scheduler: gang.Coscheduling, version: "v1alpha1", named: true},
			scheduledBy("", map[string]string{mlv1.AnnotationGangScheduler: gang.Coscheduling}).Obj(),
			`{"minMember": 4, "minResources": {"cpu": "8"}}`,
			func(t *testing.T, pod *corev1.PodTemplateSpec) {
				assert.Equal(t, "bert-training", pod.Labels["scheduling.x-k8s.io/pod-group"])
				assert.Equal(t, "scheduler-plugins-scheduler", pod.Spec.SchedulerName)
			},
		},
		"of Kubernetes": {
			observedGang{scheduler: gang.Kubernetes, version: "v1alpha2"}, scheduledBy("", nil).Obj(),
			`{"schedulingPolicy": {"gang": {"minCount": 4}}, "priorityClassName": "high"}`,
			func(t *testing.T, pod *corev1.PodTemplateSpec) {
				assert.Equal(t, &corev1.PodSchedulingGroup{PodGroupName: ptr.To("bert-training")}, pod.Spec.SchedulingGroup)
				assert.Empty(t, pod.Spec.SchedulerName)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := see(test.job, nil)
			o.gang = test.gang

			d := plan(o)

			require.Equal(t, []string{"PodGroup bert-training", "ServiceAccount bert-training", "Job bert-training, attempt 0"}, outlineOf(d).Apply)
			group := d.apply[0].(*unstructured.Unstructured)
			text, err := json.Marshal(group.Object["spec"])
			require.NoError(t, err)
			assert.JSONEq(t, test.spec, string(text))
			assert.Equal(t, test.gang.version, group.GroupVersionKind().Version)
			assert.Equal(t, test.job.UID, group.GetOwnerReferences()[0].UID)
			workers := d.apply[2].(*batchv1.Job)
			test.pod(t, &workers.Spec.Template)
			assert.Equal(t, "True GangScheduled", outlineOf(d).Conditions["Admitted"])

			// While the workers run nothing is said of the PodGroup; at the end it goes.
			o = see(test.job, workers, builders.Pod(workers, 0).Succeeded("").Obj(), builders.Pod(workers, 1).Succeeded("").Obj(),
				builders.Pod(workers, 2).Succeeded("").Obj(), builders.Pod(workers, 3).Succeeded("").Obj())
			o.gang = test.gang
			assert.Equal(t, []string{"PodGroup bert-training"}, outlineOf(plan(o)).Delete)
			running := see(test.job, workers)
			running.gang = test.gang
			assert.NotContains(t, outlineOf(plan(running)).Apply, "PodGroup bert-training")
		})
	}
}

func TestTheGangOfAnElasticJobIsWhatItNeeds(t *testing.T) {
	for name, test := range map[string]struct {
		job  *builders.TrainingJobBuilder
		want int64
	}{
		"resized while it runs":           {scheduledBy("volcano", nil).Elastic(2, 8), 2},
		"started again with another size": {scheduledBy("volcano", nil).Elastic(2, 8).Rescale(mlv1.RescaleRestart), 4},
		"of a fixed size":                 {scheduledBy("volcano", nil), 4},
	} {
		t.Run(name, func(t *testing.T) {
			o := see(test.job.Obj(), nil)
			o.gang = observedGang{scheduler: gang.Volcano, version: "v1beta1", named: true}
			size, _, err := unstructured.NestedInt64(plan(o).apply[0].(*unstructured.Unstructured).Object, "spec", "minMember")
			require.NoError(t, err)
			assert.Equal(t, test.want, size)
		})
	}
}

func TestAGangSchedulerThatIsNotServedKeepsTheJobPending(t *testing.T) {
	for name, test := range map[string]struct {
		job     *builders.TrainingJobBuilder
		gang    observedGang
		message string
	}{
		"Volcano": {
			scheduledBy("volcano", nil), observedGang{scheduler: gang.Volcano, named: true},
			"the workers must be started together by volcano, but the cluster does not serve PodGroup.scheduling.volcano.sh: " +
				"install Volcano, or set spec.scheduling.gang to false",
		},
		"a word that means nothing": {
			scheduledBy("", nil), observedGang{scheduler: "vulcano", named: true},
			`annotation ml.example.com/gang-scheduler: "vulcano" is none of volcano, coscheduling, kubernetes and none: correct it`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := see(test.job.Obj(), nil)
			o.gang = test.gang
			d := plan(o)
			assert.Equal(t, mlv1.StatePending, d.status.State)
			assert.Equal(t, reasons.GangNotServed, d.status.Reason)
			assert.Equal(t, test.message, waitingMessage(&d.status))
			assert.Equal(t, "False GangNotServed", outlineOf(d).Conditions["Admitted"])
			assert.Equal(t, lookForKinds, d.again, "it may be installed later")
			assert.Empty(t, d.apply)
		})
	}
	unnamed := see(scheduledBy("", nil).Obj(), nil)
	unnamed.gang = observedGang{scheduler: gang.Kubernetes}
	assert.Empty(t, plan(unnamed).delete)
	assert.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"}, outlineOf(plan(unnamed)).Apply,
		"what Kubernetes does not serve is done without")
}

// queued is a job that waits in a LocalQueue of Kueue.
func queued() *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Workers(2).Deadline(100).BackoffLimit(0).
		Labels(map[string]string{build.KueueQueueLabel: "team-a", "kueue.x-k8s.io/priority-class": "urgent", "kueue.x-k8s.io/max-exec-time-seconds": "60", "other": "x"}).
		Annotations(map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"})
}

// queuedWorkers is the Job of a job that waits, as it is in the manager's cache.
func queuedWorkers(job *mlv1.TrainingJob, suspended bool, condition corev1.ConditionStatus, at time.Duration) *batchv1.Job {
	workers := builders.Workers(job).Obj()
	workers.Labels[build.KueueQueueLabel], workers.Spec.Suspend = "team-a", &suspended
	if condition != "" {
		workers.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: condition, LastTransitionTime: metav1.NewTime(builders.Noon.Add(at))}}
	}
	return workers
}

func TestAQueuedJobIsMadeForKueue(t *testing.T) {
	job := queued().Obj()
	o := see(job, nil)
	assert.Equal(t, reasons.KueueNotServed, plan(o).status.Reason)

	o.kueue = true
	d := plan(o)

	require.Equal(t, []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"}, outlineOf(d).Apply)
	workers := d.apply[1].(*batchv1.Job)
	assert.True(t, *workers.Spec.Suspend, "Kueue starts it")
	assert.Equal(t, map[string]string{
		"training-job": "bert", "trainingjob": "bert",
		build.KueueQueueLabel: "team-a", "kueue.x-k8s.io/priority-class": "urgent", "kueue.x-k8s.io/max-exec-time-seconds": "60",
	}, workers.Labels)
	assert.Equal(t, "rack", workers.Spec.Template.Annotations["kueue.x-k8s.io/podset-required-topology"])
	assert.Nil(t, workers.Spec.PodFailurePolicy, "pods that Kueue stops must not fail the Job")

	job.Labels[build.KueueQueueLabel] = "team-b"
	running := see(job, queuedWorkers(job, false, corev1.ConditionFalse, 0))
	for _, object := range plan(running).apply {
		if again, ok := object.(*batchv1.Job); ok {
			assert.Equal(t, "team-a", again.Labels[build.KueueQueueLabel], "the queue of a Job does not change")
			assert.False(t, child.HasDrifted(again, running.workers), "what Kueue changed is not fought")
		}
	}
}

func TestTheLifeOfAQueuedJob(t *testing.T) {
	job := queued().Obj()
	look := func(workers *batchv1.Job, at time.Duration, pods ...*corev1.Pod) outline {
		d := plan(see(job, workers, pods...).after(at))
		job.Status = d.status
		short := outlineOf(d)
		assert.Zero(t, short.Restarts, "what Kueue does is no restart")
		return short
	}
	workers := builders.Workers(job).Obj()
	waits := look(queuedWorkers(job, true, corev1.ConditionTrue, 0), 0)
	assert.Equal(t, mlv1.StatePending, waits.State)
	assert.Equal(t, reasons.Queued, waits.Reason)
	assert.Equal(t, "False Queued", waits.Conditions["Admitted"])

	admitted := look(queuedWorkers(job, false, corev1.ConditionFalse, time.Minute), time.Minute)
	assert.Equal(t, mlv1.StateInitializing, admitted.State)
	assert.Equal(t, "True AdmittedByQueue", admitted.Conditions["Admitted"])
	assert.Equal(t, reasons.WorkersStarting, admitted.Reason, "its pods have only just been asked for")

	old := []*corev1.Pod{
		builders.Pod(workers, 0).Running().Created(time.Minute).Obj(), builders.Pod(workers, 1).Running().Created(time.Minute).Obj(),
	}
	assert.Equal(t, mlv1.StateRunning, look(queuedWorkers(job, false, corev1.ConditionFalse, time.Minute), time.Minute, old...).State)

	stopped := builders.Pod(workers, 0).Failed(143).Created(time.Minute).Deleting(3 * time.Minute).Obj()
	evicted := look(queuedWorkers(job, true, corev1.ConditionFalse, time.Minute), 2*time.Minute, stopped, old[1])
	assert.Equal(t, mlv1.StateSuspended, evicted.State)
	assert.Equal(t, reasons.EvictedByQueue, evicted.Reason)
	assert.Equal(t, "True EvictedByQueue", evicted.Conditions["Suspended"])
	assert.Equal(t, "False Queued", evicted.Conditions["Admitted"])
	assert.Empty(t, evicted.Delete)

	still := look(queuedWorkers(job, false, corev1.ConditionTrue, 2*time.Minute), 2*time.Hour, stopped)
	assert.Equal(t, mlv1.StateSuspended, still.State, "until the Job controller has seen that it may run again; no deadline passes")

	again := look(queuedWorkers(job, false, corev1.ConditionFalse, 3*time.Hour), 3*time.Hour, stopped)
	assert.Equal(t, mlv1.StateInitializing, again.State, "pods from before the eviction are no failure")
	next := []*corev1.Pod{
		stopped, builders.Pod(workers, 0).Running().Created(3 * time.Hour).Obj(), builders.Pod(workers, 1).Running().Created(3 * time.Hour).Obj(),
	}
	running := look(queuedWorkers(job, false, corev1.ConditionFalse, 3*time.Hour), 3*time.Hour+50*time.Second, next...)
	assert.Equal(t, mlv1.StateRunning, running.State)
	assert.Equal(t, "False Resumed", running.Conditions["Suspended"])
	assert.Equal(t, 50*time.Second, running.Again, "the deadline started again")

	next[1] = builders.Pod(workers, 0).Failed(1).Created(3 * time.Hour).Obj()
	d := plan(see(job, queuedWorkers(job, false, corev1.ConditionFalse, 3*time.Hour), next...).after(3*time.Hour + 50*time.Second))
	assert.Equal(t, mlv1.StateFailed, d.status.State)
	job.Status = d.status
	assert.Contains(t, outlineOf(plan(see(job, queuedWorkers(job, false, corev1.ConditionFalse, 3*time.Hour), next...))).Delete,
		"Job bert-training, attempt 0", "it would create pods forever")
}

// The Job controller makes the pods of a Job before it notes that the Job was resumed.
func TestPodsAreOlderThanTheNoteThatTheirJobWasResumed(t *testing.T) {
	job := queued().Obj()
	workers := queuedWorkers(job, false, corev1.ConditionFalse, 10*time.Second)
	pod := func(created time.Duration) *builders.PodBuilder { return builders.Pod(workers, 0).Created(created) }
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		present bool
	}{
		"it runs":                         {pod(9 * time.Second).Running().Obj(), true},
		"it does not run yet":             {pod(9 * time.Second).Obj(), true},
		"it has failed since":             {pod(9 * time.Second).Failed(1).After(11 * time.Second).Obj(), true},
		"it had failed before":            {pod(0).Failed(1).After(9 * time.Second).Obj(), false},
		"it was stopped with the Job":     {pod(0).Running().Deleting(5 * time.Second).Obj(), false},
		"its work was done before":        {pod(0).Succeeded("").Obj(), true},
		"it came after that and is going": {pod(10 * time.Second).Running().Deleting(15 * time.Second).Obj(), true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.present, len(sinceAdmission(workers, []*corev1.Pod{test.pod})) == 1)
		})
	}
}
