package workerpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

var settings = Settings{Namespace: "operator", WorkerImage: "worker:1", JobServiceURL: "http://jobs:8000"}

// noTrust is that of a job service by plain HTTP.
var noTrust = trust{known: true}

func queueWith(workers *aiplatformv1alpha1.WorkerPool) *aiplatformv1alpha1.AIJobQueue {
	queue := &aiplatformv1alpha1.AIJobQueue{}
	queue.Name, queue.UID, queue.Generation = "digits", "uid-of-queue", 3
	queue.Spec.Workers = workers
	return queue
}

func says(waiting, running int32) answer {
	return answer{asked: true, figures: Figures{Waiting: waiting, Running: running}}
}

func TestPlan(t *testing.T) {
	queue := queueWith(pool(0, 10, 1, 60))
	two := deployment(queue, 2, settings, noTrust)
	two.Generation = 7
	known := memory{known: true, scaling: scaling{replicas: 2}, deployment: deployment(queue, 2, settings, noTrust), generation: 7}
	elsewhere := two.DeepCopy()
	elsewhere.Namespace = "old"
	ending := two.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{Time: noon}
	scaledByHand := two.DeepCopy()
	scaledByHand.Generation = 8
	for name, test := range map[string]struct {
		queue        *aiplatformv1alpha1.AIJobQueue
		deployments  []*appsv1.Deployment
		answer       answer
		memory       memory
		replicas     int32 // of the Deployment that is written; -1: none is
		remove       int
		removeRights bool
	}{
		"a queue without workers":          {queueWith(nil), nil, says(5, 0), memory{}, -1, 0, false},
		"its workers are removed":          {queueWith(nil), []*appsv1.Deployment{two}, says(5, 0), known, -1, 1, true},
		"before the job service was asked": {queue, nil, answer{}, memory{}, 0, 0, false},
		"from none":                        {queue, nil, says(3, 0), memory{}, 3, 0, false},
		"nothing has changed":              {queue, []*appsv1.Deployment{two}, says(1, 1), known, -1, 0, false},
		"more":                             {queue, []*appsv1.Deployment{two}, says(4, 1), known, 5, 0, false},
		"less, but not yet":                {queue, []*appsv1.Deployment{two}, says(0, 0), known, -1, 0, false},
		"a manager that has just started keeps what it finds": {queue, []*appsv1.Deployment{two}, says(0, 0), memory{}, 2, 0, false},
		"the job service does not answer":                     {queue, []*appsv1.Deployment{two}, answer{asked: true, problem: "no"}, known, -1, 0, false},
		"it was scaled by hand":                               {queue, []*appsv1.Deployment{scaledByHand}, says(1, 1), known, 2, 0, false},
		"it is being deleted":                                 {queue, []*appsv1.Deployment{ending}, says(1, 1), known, -1, 0, false},
		"workers move to another namespace":                   {queue, []*appsv1.Deployment{elsewhere}, says(1, 1), known, 2, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := plan(observed{trust: noTrust, queue: test.queue, deployments: test.deployments, answer: test.answer, memory: test.memory, now: noon}, settings)
			if test.replicas < 0 {
				assert.Nil(t, d.deployment)
			} else if assert.NotNil(t, d.deployment) {
				assert.Equal(t, test.replicas, *d.deployment.Spec.Replicas)
			}
			assert.Len(t, d.remove, test.remove)
			assert.Equal(t, test.removeRights, d.removeRights)
		})
	}
}

func TestPodsThatAreNotReadyAreLookedAtAgain(t *testing.T) {
	queue := queueWith(pool(2, 2, 1, 60))
	d := deployment(queue, 2, settings, noTrust)
	o := observed{trust: noTrust, queue: queue, deployments: []*appsv1.Deployment{d}, answer: says(1, 0), now: noon}
	assert.Equal(t, podsInterval, plan(o, settings).again)
	d.Status.ReadyReplicas = 2
	assert.Zero(t, plan(o, settings).again)
}

func TestTheDeploymentIsAsTheQueueAsks(t *testing.T) {
	workers := &aiplatformv1alpha1.WorkerPool{
		Image: "own:1", Command: []string{"/own"}, Args: []string{"--fast"}, Namespace: "team",
		Env:          []corev1.EnvVar{{Name: "JOB_TYPES", Value: "inference"}, {Name: "QUEUE", Value: "another"}},
		NodeSelector: map[string]aiplatformv1alpha1.LabelValue{"gpu": "yes"},
		Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	d := deployment(queueWith(workers), 1, settings, noTrust)
	assert.Equal(t, "team", d.Namespace)
	assert.Equal(t, "digits-workers", d.Name)
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	assert.Equal(t, "own:1", c.Image)
	assert.Equal(t, []string{"/own"}, c.Command)
	assert.Equal(t, []string{"--fast"}, c.Args)
	assert.Nil(t, c.ReadinessProbe, "of others' workers it is not known what they answer")
	assert.Equal(t, map[string]string{"gpu": "yes"}, pod.NodeSelector)
	assert.Equal(t, workers.Tolerations, pod.Tolerations)
	values := map[string]string{}
	for _, variable := range c.Env {
		_, twice := values[variable.Name]
		require.False(t, twice, variable.Name)
		values[variable.Name] = variable.Value
	}
	assert.Equal(t, "digits", values["QUEUE"], "the operator's own variables count more")
	assert.Equal(t, "inference", values["JOB_TYPES"])
	assert.Equal(t, "http://jobs:8000", values["JOB_SERVICE_URL"])
	assert.False(t, *pod.AutomountServiceAccountToken, "the only token is for the job service")
	assert.Equal(t, "job-service", pod.Volumes[0].Projected.Sources[0].ServiceAccountToken.Audience)
	assert.Greater(t, *pod.TerminationGracePeriodSeconds, int64(graceSeconds))

	own := deployment(queueWith(&aiplatformv1alpha1.WorkerPool{}), 1, settings, noTrust)
	c = own.Spec.Template.Spec.Containers[0]
	assert.Equal(t, "operator", own.Namespace)
	assert.Equal(t, "worker:1", c.Image)
	assert.Equal(t, []string{"/usr/bin/env", "python3", "-m", "pool_worker"}, c.Command)
	assert.NotNil(t, c.ReadinessProbe)
}

func TestWorkersTrustTheAuthoritiesOfTheJobService(t *testing.T) {
	queue := queueWith(pool(1, 1, 1, 60))
	o := observed{queue: queue, answer: says(1, 0), now: noon, trust: trust{changes: true}}
	d := plan(o, settings)
	assert.Nil(t, d.deployment, "workers would be replaced as soon as the authorities are known")
	assert.Equal(t, unknownInterval, d.again)

	o.trust = trust{bundle: "certificates", known: true, changes: true}
	d = plan(o, settings)
	pod := d.deployment.Spec.Template.Spec
	assert.Contains(t, pod.Containers[0].Env, corev1.EnvVar{Name: "JOB_SERVICE_CA_FILE", Value: tokenFolder + "/ca.crt"})
	assert.Equal(t, "digits-workers", pod.Volumes[0].Projected.Sources[1].ConfigMap.Name)
	assert.Equal(t, authoritiesInterval, d.again)
	assert.LessOrEqual(t, d.again, time.Minute, "those that are needed at once")
	o.trust.bundle = "more certificates"
	assert.Equal(t, d.deployment, plan(o, settings).deployment, "the kubelet gives them to pods that run")
	assert.Len(t, rights(queue, settings, o.trust), 4)
	assert.Len(t, rights(queue, settings, noTrust), 3)
}

func TestStatus(t *testing.T) {
	queue := queueWith(pool(0, 10, 1, 60))
	with := func(ready int32, conditions ...appsv1.DeploymentCondition) *appsv1.Deployment {
		d := deployment(queue, 2, settings, noTrust)
		d.Status.ReadyReplicas, d.Status.Conditions = ready, conditions
		return d
	}
	waiting := func(name, reason string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "operator"}, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{
				Image: "own:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 64}},
			}},
		}}
	}
	unschedulable := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes have a GPU",
	}}}}
	refused := appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}
	for name, test := range map[string]struct {
		deployment *appsv1.Deployment
		pods       []*corev1.Pod
		answer     answer
		replicas   int32
		state      metav1.ConditionStatus
		reason     string
		message    string
	}{
		"all ready":   {with(2), nil, says(1, 1), 2, metav1.ConditionTrue, "WorkersReady", "All of 2 workers are ready."},
		"none needed": {with(0), nil, says(0, 0), 0, metav1.ConditionTrue, "ScaledToZero", "No task waits or runs: there is no worker."},
		"starting":    {with(1), nil, says(2, 0), 2, metav1.ConditionFalse, "WorkersStarting", "1 of 2 workers are ready; the others are being started."},
		"no answer": {with(2), nil, answer{asked: true, problem: "it is gone"}, 2, metav1.ConditionFalse, "JobServiceUnreachable",
			"The job service does not say how many tasks wait, so the number of workers stays 2: it is gone"},
		"no image": {with(0), []*corev1.Pod{waiting("b", "ErrImagePull"), unschedulable}, says(2, 0), 2, metav1.ConditionFalse, "ImagePullFailed",
			"0 of 2 workers are ready: image own:1 cannot be pulled: because"},
		"crashes": {with(0), []*corev1.Pod{waiting("b", "CrashLoopBackOff")}, says(2, 0), 2, metav1.ConditionFalse, "WorkersFailing",
			"0 of 2 workers are ready: the worker crashes repeatedly, last with exit code 64: see the log of pod operator/b"},
		"cannot be started": {with(0), []*corev1.Pod{waiting("b", "CreateContainerConfigError")}, says(2, 0), 2, metav1.ConditionFalse, "WorkersFailing",
			"0 of 2 workers are ready: the worker cannot be started: because"},
		"no room": {with(1), []*corev1.Pod{unschedulable}, says(2, 0), 2, metav1.ConditionFalse, "Unschedulable",
			"1 of 2 workers are ready: 0/1 nodes have a GPU"},
		"refused": {with(0, refused), nil, says(2, 0), 2, metav1.ConditionFalse, "PodCreationFailed", "The cluster refuses pods of the workers: exceeded quota"},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed{trust: noTrust, queue: queue, pods: test.pods, answer: test.answer, now: noon}
			s := status(o, test.deployment, test.replicas)
			assert.Equal(t, &metav1.Condition{
				Type: "WorkersReady", Status: test.state, Reason: test.reason, Message: test.message,
				ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(noon),
			}, s.condition)
			assert.Equal(t, &aiplatformv1alpha1.WorkerPoolStatus{
				Replicas: test.replicas, Ready: test.deployment.Status.ReadyReplicas,
				WaitingTasks: test.answer.figures.Waiting, RunningTasks: test.answer.figures.Running,
			}, s.workers)
		})
	}
	assert.Equal(t, poolStatus{}, status(observed{trust: noTrust, queue: queue}, nil, 0), "nothing is known before the job service was asked")
}

func TestWhenTheStatusIsWritten(t *testing.T) {
	queue := queueWith(pool(0, 10, 1, 60))
	o := observed{trust: noTrust, queue: queue, answer: says(1, 1), now: noon}
	was := deployment(queue, 2, settings, noTrust)
	was.Status.ReadyReplicas = 2
	first := status(o, was, 2)
	before := aiplatformv1alpha1.AIJobQueueStatus{Workers: first.workers, Conditions: []metav1.Condition{*first.condition}}
	figures := func(waiting, ready int32) poolStatus {
		s := poolStatus{condition: first.condition, workers: ptr.To(*first.workers)}
		s.workers.WaitingTasks, s.workers.Ready = waiting, ready
		return s
	}
	for name, test := range map[string]struct {
		before     aiplatformv1alpha1.AIJobQueueStatus
		status     poolStatus
		hasWorkers bool
		since      time.Duration
		now        bool
		later      time.Duration
	}{
		"for the first time":            {aiplatformv1alpha1.AIJobQueueStatus{}, first, true, time.Hour, true, 0},
		"the same":                      {before, first, true, time.Hour, false, 0},
		"only tasks, and a while ago":   {before, figures(9, 2), true, 10 * time.Second, true, 0},
		"only tasks, and just written":  {before, figures(9, 2), true, 4 * time.Second, false, 6 * time.Second},
		"a worker is ready":             {before, figures(1, 3), true, time.Second, true, 0},
		"nothing to say yet":            {before, poolStatus{}, true, time.Hour, false, 0},
		"workers were removed":          {before, poolStatus{}, false, time.Second, true, 0},
		"there were none, and are none": {aiplatformv1alpha1.AIJobQueueStatus{}, poolStatus{}, false, time.Hour, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now, later := due(test.before, test.status, test.hasWorkers, test.since)
			assert.Equal(t, test.now, now)
			assert.Equal(t, test.later, later)
		})
	}
}
