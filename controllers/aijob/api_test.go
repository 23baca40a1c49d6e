package aijob

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

func TestAPIAJobRunsToItsEnd(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Value: 1000}
	queue := &aiplatformv1alpha1.AIJobQueue{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace}, Spec: aiplatformv1alpha1.AIJobQueueSpec{PriorityClass: class.Name},
	}
	require.NoError(t, c.Create(t.Context(), class))
	require.NoError(t, c.Create(t.Context(), queue))
	run := c.submit(job().Queue(queue.Name).Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Config = rawOf(`{"model":"bert","price":"$(HOME)"}`)
		s.Env = []corev1.EnvVar{{Name: "MINE", Value: "$(AIJOB_NAME)"}, {Name: "JOB_TYPE", Value: "own"}}
	}))
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)

	pod := c.pods()[0]
	assert.Equal(t, "infer-0-0", pod.Name)
	assert.Equal(t, map[string]string{
		aiplatformv1alpha1.LabelAIJob: "infer", aiplatformv1alpha1.LabelQueue: queue.Name,
		aiplatformv1alpha1.LabelMember: "0", aiplatformv1alpha1.LabelAttempt: "0", child.LabelNotInBackup: "true",
	}, pod.Labels)
	assert.True(t, metav1.IsControlledBy(&pod, run))
	assert.Empty(t, pod.Finalizers)
	assert.Equal(t, class.Name, pod.Spec.PriorityClassName)
	assert.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
	assert.Equal(t, ptr.To(false), pod.Spec.AutomountServiceAccountToken)
	assert.Equal(t, int64(30), *pod.Spec.TerminationGracePeriodSeconds)
	assert.Equal(t, []corev1.EnvVar{
		{Name: "AIJOB_NAME", Value: "infer"}, {Name: "ATTEMPT", Value: "0"},
		{Name: "CONFIG", Value: `{"model":"bert","price":"$$(HOME)"}`},
		{Name: "MINE", Value: "$(AIJOB_NAME)"}, {Name: "JOB_TYPE", Value: "own"},
	}, pod.Spec.Containers[0].Env, "the user's own goes before the platform's, and what is configured is passed on as it is")
	var services corev1.ServiceList
	require.NoError(t, c.List(t.Context(), &services, client.InNamespace(c.namespace)))
	assert.Empty(t, services.Items, "one pod needs no Service")

	c.exit(pod.Name, 0, `{"answer": 42}`)
	c.reachPhase(run, aiplatformv1alpha1.AIJobSucceeded, 0)
	assert.Equal(t, map[string]string{"answer": "42"}, run.Status.Outputs)
	assert.Equal(t, int32(0), *run.Status.ExitCode)
	assert.Equal(t, map[string]string{
		"Ready": "True Completed", "Queued": "False Completed", "Scheduled": "True Completed", "Complete": "True Completed",
	}, conditions(run.Status))
	c.tells(m, "Normal Scheduled the pod is being started on node a", "Normal Running", "Normal Completed")
	c.until("three figures, and one for each of the four ways to end", func() bool {
		figures, err := testutil.GatherAndCount(m.metrics, "aijob_submitted_total", "aijob_completed_total", "aijob_dispatch_latency_seconds",
			"aijob_execution_duration_seconds")
		require.NoError(t, err)
		return figures == 7
	})
}

// A life without failures costs four writes, and looking at it again none.
func TestAPIWritesOfALife(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	run := c.submit(job())
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	c.unchanged(m, run)
	c.exit("infer-0-0", 0, "")
	c.reachPhase(run, aiplatformv1alpha1.AIJobSucceeded, 0)
	c.unchanged(m, run)

	status := "/apis/aiplatform.example.com/v1alpha1/namespaces/" + c.namespace + "/aijobs/infer/status"
	writes := m.Written()
	assert.LessOrEqual(t, len(writes), 5, "%q", writes)
	create := slices.Index(writes, "POST /api/v1/namespaces/"+c.namespace+"/pods")
	require.Positive(t, create, "%q", writes)
	assert.Equal(t, "PATCH "+status, writes[create-1], "the place is written down before the pod is made")
	for i, write := range writes {
		if i != create {
			assert.Equal(t, "PATCH "+status, write)
		}
	}
	t.Logf("%d writes", len(writes))
}

func TestAPIAPodThatCannotBeWrittenIsTold(t *testing.T) {
	c := newCluster(t)
	m := c.start(&crash.Cut{Method: http.MethodPost, Path: "/pods", Refused: true})
	run := c.submit(job())

	c.reach(run, "told what cannot be written", func(s *aiplatformv1alpha1.AIJobStatus) bool {
		return meta.IsStatusConditionFalse(s.Conditions, reasons.ConditionChildrenApplied)
	})
	assert.Equal(t, aiplatformv1alpha1.AIJobScheduled, run.Status.Phase)
	told := meta.FindStatusCondition(run.Status.Conditions, reasons.ConditionChildrenApplied)
	assert.Equal(t, reasons.WriteFailed, told.Reason)
	assert.Contains(t, told.Message, "create Pod infer-0-0")
	m.Heal()
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	c.reach(run, "told that all is written", func(s *aiplatformv1alpha1.AIJobStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, reasons.ConditionChildrenApplied)
	})
}

// Pods of earlier attempts that have ended are deleted when the next one starts.
func TestAPIAPodThatCannotBeDeletedHoldsUpNoAttempt(t *testing.T) {
	c := newCluster(t)
	m := c.start(&crash.Cut{Method: http.MethodDelete, Path: "/infer-0-0", Refused: true})
	run := c.submit(job().Retries(3, 100*time.Millisecond))
	for retry := range int32(2) {
		c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, retry)
		c.exit(fmt.Sprintf("infer-0-%d", retry), 1, "")
	}
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 2)
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "infer-0-0"}, &corev1.Pod{}))

	m.Heal() // the next attempt deletes both
	c.exit("infer-0-2", 1, "")
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 3)
	c.until("earlier pods to be gone", func() bool { return len(c.pods()) == 2 })
}

func TestAPIAGangStartsTogetherAndEndsTogether(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	run := c.submit(gang().Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.JobType = aiplatformv1alpha1.JobTraining
		s.Env = []corev1.EnvVar{{Name: "RANK", Value: "7"}, {Name: "MASTER_ADDR", Value: "localhost"}, {Name: "ATTEMPT", Value: "mine"}}
	}).Retries(1, 100*time.Millisecond))
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	assert.Equal(t, []string{"a", "b"}, placementOf(&run.Status))

	var service corev1.Service
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "train-members"}, &service))
	assert.Equal(t, corev1.ClusterIPNone, service.Spec.ClusterIP)
	assert.True(t, service.Spec.PublishNotReadyAddresses)
	for i, pod := range c.pods() {
		assert.Equal(t, []string{"a", "b"}[i], pod.Spec.NodeName)
		assert.Equal(t, service.Name, pod.Spec.Subdomain)
		assert.Equal(t, int64(60), *pod.Spec.TerminationGracePeriodSeconds, "time for a last checkpoint")
		env := map[string]string{}
		for _, variable := range pod.Spec.Containers[0].Env {
			env[variable.Name] = variable.Value
		}
		assert.Equal(t, map[string]string{
			"AIJOB_NAME": "train", "JOB_TYPE": "training", "ATTEMPT": "mine", "RANK": []string{"0", "1"}[i],
			"JOB_COMPLETION_INDEX": []string{"0", "1"}[i], "WORLD_SIZE": "2", "MASTER_PORT": "29500",
			"MASTER_ADDR": "train-0.train-members." + c.namespace + ".svc",
		}, env)
	}

	c.exit("train-1-0", 3, "boom")
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 1)
	c.until("the end of the first try", func() bool { return len(c.pods()) == 3 }) // the failed one stays for its logs
	assert.Equal(t, int32(1), run.Status.RetryCount)
	c.exit("train-0-1", 0, "")
	c.exit("train-1-1", 0, "")
	c.reachPhase(run, aiplatformv1alpha1.AIJobSucceeded, 1)
	assert.Equal(t, aiplatformv1alpha1.MembersStatus{Total: 2, Succeeded: 2}, *run.Status.Members)
	c.tells(m, "Warning ProgramFailed pod train-1-0 on node b ended with exit code 3: boom")
}

func TestAPIAPreemptedJobGivesItsPlaceBackAndRunsAgain(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	run := c.submit(job())
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	c.deaf = true
	c.decider.decide(run, &queueing.Decision{Preempted: &queueing.PreemptedBy{Kind: "AIJob", Namespace: "team", Name: "urgent", Priority: 90}})
	c.reachPhase(run, aiplatformv1alpha1.AIJobQueued, 1)
	assert.Equal(t, "Preempted", run.Status.Reason)
	assert.Contains(t, run.Status.Message, "preempted by AIJob team/urgent (priority 90")
	c.until("its pod being asked to end", func() bool { return c.pods()[0].DeletionTimestamp != nil })
	assert.Equal(t, int64(30), *c.pods()[0].DeletionGracePeriodSeconds)
	_, state := Source(workerdefaults.Defaults{}, nil).Job(run)
	assert.Equal(t, queueing.Holding, state, "until its pod has ended")

	c.deaf = false
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 1)
	assert.Equal(t, []string{"infer-0-0", "infer-0-1"}, c.created)
	assert.Zero(t, run.Status.RetryCount)
	assert.Equal(t, int32(1), run.Status.PreemptionCount)
}

func TestAPIDeadLetterAndBack(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	run := c.submit(job().Retries(1, 10*time.Millisecond))
	for try, name := range []string{"infer-0-0", "infer-0-1"} {
		c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, int32(try))
		c.exit(name, 1, "")
	}
	c.reachPhase(run, aiplatformv1alpha1.AIJobDeadLetter, 1)
	c.unchanged(m, run)
	c.patch(run, map[string]any{"metadata": map[string]any{"annotations": map[string]any{aiplatformv1alpha1.AnnotationRequeue: "true"}}})
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 2)
	assert.NotContains(t, run.Annotations, aiplatformv1alpha1.AnnotationRequeue)
	c.exit("infer-0-2", 1, "")
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 3)
	c.exit("infer-0-3", 0, "")
	c.reachPhase(run, aiplatformv1alpha1.AIJobSucceeded, 3)
}

func TestAPICancelStopsThePods(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	run := c.submit(gang())
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	c.patch(run, map[string]any{"spec": map[string]any{"cancel": true}})
	c.reach(run, "Cancelled", func(s *aiplatformv1alpha1.AIJobStatus) bool {
		return s.Phase == aiplatformv1alpha1.AIJobCancelled && len(s.Assignments) == 0
	})
	assert.Empty(t, c.pods())
}

func TestAPIAJobGoesAfterItsTimeToLive(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	run := c.submit(job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](0) }))
	c.until("its pod", func() bool { return len(c.pods()) == 1 && c.pods()[0].Status.Phase == corev1.PodRunning })
	c.exit("infer-0-0", 0, "")
	c.until("the job being gone", func() bool { return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(run), run)) })
}

func TestAPIPodsThatAreTakenAway(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	run := c.submit(job())
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	pod := c.pods()[0]
	require.NoError(t, c.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)))
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 1)
	assert.Zero(t, run.Status.RetryCount)

	// One that only loses its label still runs, and is not replaced.
	pod = c.pods()[0]
	withoutLabel := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, aiplatformv1alpha1.LabelAIJob)
	require.NoError(t, c.Patch(t.Context(), &pod, client.RawPatch(types.MergePatchType, withoutLabel)))
	c.unchanged(m, run)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(run), run))
	assert.Equal(t, "Running Running", short(run.Status))
}

// A pod that was made for a job and then given to another by its label is not found by it, and must not be waited for without end.
func TestAPIAPodWithTheLabelOfAnotherJobIsNotWaitedFor(t *testing.T) {
	c := newCluster(t)
	c.stuck = true
	c.start(nil)
	run := c.submit(job())
	c.until("its pod", func() bool { return len(c.pods()) == 1 })
	c.reachPhase(run, aiplatformv1alpha1.AIJobScheduled, 0)
	pod := c.pods()[0]
	ofAnother := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"other"}}}`, aiplatformv1alpha1.LabelAIJob)
	require.NoError(t, c.Patch(t.Context(), &pod, client.RawPatch(types.MergePatchType, ofAnother)))
	c.patch(run, map[string]any{"spec": map[string]any{"cancel": true}})
	c.reachPhase(run, aiplatformv1alpha1.AIJobCancelled, 0)
}

func TestAPIAJobWithAServiceAccountGetsItsToken(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	run := c.submit(job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.ServiceAccountName = "robot" }))
	c.reachPhase(run, aiplatformv1alpha1.AIJobRunning, 0)
	assert.Equal(t, "robot", c.pods()[0].Spec.ServiceAccountName)
	assert.Nil(t, c.pods()[0].Spec.AutomountServiceAccountToken)
}

func TestAPIPodsThatTheClusterRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		hard, used string
		want       string
	}{
		"for a quota that is used up":   {"2", "2", "Retrying ResourceQuotaExceeded"},
		"for a quota that is too small": {"1", "0", "Failed QuotaTooSmall"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			quota := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: "few", Namespace: c.namespace},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse(test.hard)}},
			}
			require.NoError(t, c.Create(t.Context(), quota))
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"pods": resource.MustParse(test.used)}}
			require.NoError(t, c.Status().Update(t.Context(), quota))
			c.start(nil)
			run := c.submit(gang())
			c.reach(run, test.want, func(s *aiplatformv1alpha1.AIJobStatus) bool { return short(*s) == test.want })
			assert.Contains(t, run.Status.Message, "exceeded quota: few")
			assert.Zero(t, run.Status.RetryCount)
			c.until("no pod being left", func() bool { return len(c.pods()) == 0 })
		})
	}
	t.Run("for their names, which are taken", func(t *testing.T) {
		c := newCluster(t)
		c.start(nil)
		restricted := buildPod(job().Namespace(c.namespace).Obj(), 0, "a", "", "")
		restricted.OwnerReferences, restricted.Labels = nil, nil
		require.NoError(t, c.Create(t.Context(), restricted))
		run := c.submit(job())
		c.reach(run, "in conflict", func(s *aiplatformv1alpha1.AIJobStatus) bool { return short(*s) == "Retrying ObjectConflict" })
		assert.Contains(t, run.Status.Message, "Pod infer-0-0 exists and does not belong to this AIJob")
	})
}
