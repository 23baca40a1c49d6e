package runner

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

func TestAJobRunsAsAnAIJob(t *testing.T) {
	w := newWorld(t)
	d, _ := w.replica()
	id := w.submit(func(job *jobs.Job) {
		job.Priority, job.Config, job.Timeout = 70, json.RawMessage(`{"batch":8}`), 90*time.Second
		job.Resources = jobs.Resources{CPU: "500m", Memory: "1Gi", GPU: 2}
		job.Gang = jobs.Gang{Enabled: true, MinMembers: 4, Topology: "topology.kubernetes.io/zone"}
	})
	aijob := w.aijob(id)
	assert.Equal(t, map[string]string{aiplatformv1alpha1.LabelServiceJob: id, aiplatformv1alpha1.LabelQueue: "inference"}, aijob.Labels)
	assert.Equal(t, "alice", aijob.Annotations[aiplatformv1alpha1.AnnotationUser])
	assert.Equal(t, aiplatformv1alpha1.JobInference, aijob.Spec.JobType)
	assert.EqualValues(t, 70, *aijob.Spec.Priority)
	assert.Empty(t, aijob.Spec.QueueName, "there is no AIJobQueue of the type's name, and the sender asked for none")
	assert.JSONEq(t, `{"batch":8}`, string(aijob.Spec.Config.Raw))
	assert.Equal(t, "2", aijob.Spec.Resources.Limits.Name(gpuResource, resource.DecimalSI).String())
	assert.Equal(t, "500m", aijob.Spec.Resources.Requests.Cpu().String())
	assert.EqualValues(t, 4, aijob.Spec.Gang.MinMembers)
	assert.EqualValues(t, 90, *aijob.Spec.TimeoutSeconds)
	assert.EqualValues(t, 3, *aijob.Spec.RetryPolicy.MaxRetries)

	for _, step := range []struct {
		phase aiplatformv1alpha1.AIJobPhase
		want  jobs.Status
	}{
		{aiplatformv1alpha1.AIJobScheduled, jobs.Scheduled},
		{aiplatformv1alpha1.AIJobRunning, jobs.Running},
		{aiplatformv1alpha1.AIJobRetrying, jobs.Retrying},
		{aiplatformv1alpha1.AIJobScheduled, jobs.Scheduled},
		{aiplatformv1alpha1.AIJobRunning, jobs.Running},
		// It loses its place.
		{aiplatformv1alpha1.AIJobQueued, jobs.Retrying},
		{aiplatformv1alpha1.AIJobRunning, jobs.Running},
	} {
		w.reaches(id, step.phase)
		w.awaitStatus(id, step.want)
	}
	w.reaches(id, aiplatformv1alpha1.AIJobSucceeded, func(s *aiplatformv1alpha1.AIJobStatus) { s.Outputs = map[string]string{"accuracy": "0.97"} })
	job := w.awaitStatus(id, jobs.Succeeded)
	assert.JSONEq(t, `{"accuracy":"0.97"}`, string(job.Result))
	w.awaitGone(d)
}

func TestTheEndOfAnAIJobIsThatOfItsJob(t *testing.T) {
	w := newWorld(t)
	w.replica()
	for phase, want := range map[aiplatformv1alpha1.AIJobPhase]jobs.Status{
		aiplatformv1alpha1.AIJobFailed:     jobs.Failed,
		aiplatformv1alpha1.AIJobDeadLetter: jobs.DeadLetter,
		aiplatformv1alpha1.AIJobCancelled:  jobs.Cancelled,
		aiplatformv1alpha1.AIJobSucceeded:  jobs.Succeeded,
	} {
		t.Run(string(phase), func(t *testing.T) {
			id := w.submit()
			w.aijob(id)
			w.reaches(id, phase, func(s *aiplatformv1alpha1.AIJobStatus) { s.Message = "exit code 3 of pod 0" })
			job := w.awaitStatus(id, want)
			if want == jobs.Failed || want == jobs.DeadLetter {
				assert.Equal(t, "exit code 3 of pod 0", job.Error)
			}
		})
	}
}

func TestTheQueueIsNamedWhereItExists(t *testing.T) {
	w := newWorld(t)
	w.replica()
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: "simulation"}}
	require.NoError(t, w.cluster.direct.Create(t.Context(), queue))
	t.Cleanup(func() { assert.NoError(t, w.cluster.direct.Delete(context.WithoutCancel(t.Context()), queue)) })
	w.eventually("the queue is known", func(c *assert.CollectT) {
		assert.NoError(c, w.cluster.cached.Get(t.Context(), client.ObjectKeyFromObject(queue), &aiplatformv1alpha1.AIJobQueue{}))
	})
	ofItsType := w.submit(func(job *jobs.Job) { job.Type, job.Queue = "simulation", "simulation" })
	ofAnother := w.submit(func(job *jobs.Job) { job.Queue = "nightly" })
	assert.Equal(t, "simulation", w.aijob(ofItsType).Spec.QueueName)
	assert.Equal(t, "nightly", w.aijob(ofAnother).Spec.QueueName, "it waits until the queue exists")
}

func TestCancellingAJobCancelsItsAIJob(t *testing.T) {
	cancelled := func(w *world, id string) {
		w.eventually("the AIJob is cancelled", func(c *assert.CollectT) {
			aijob := &aiplatformv1alpha1.AIJob{}
			require.NoError(c, w.cluster.direct.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + id}, aijob))
			require.NotNil(c, aijob.Spec.Cancel)
			assert.True(c, *aijob.Spec.Cancel)
		})
	}
	t.Run("in the replica that has it", func(t *testing.T) {
		w := newWorld(t)
		d, _ := w.replica()
		id := w.submit()
		w.aijob(id)
		_, err := (&Watched{Store: w.store, Dispatcher: d}).Cancel(t.Context(), id, "alice")
		require.NoError(t, err)
		cancelled(w, id)
		w.awaitGone(d)
	})
	t.Run("in another replica", func(t *testing.T) {
		w := newWorld(t)
		w.store.visibility = time.Hour // no heartbeat tells
		_, end := w.replica()
		id := w.submit()
		w.aijob(id)
		end()
		other, _ := w.replica()
		_, err := (&Watched{Store: w.store, Dispatcher: other}).Cancel(t.Context(), id, "alice")
		require.NoError(t, err)
		cancelled(w, id)
		w.awaitGone(other)
	})
	t.Run("by the heartbeat", func(t *testing.T) {
		w := newWorld(t)
		d, _ := w.replica()
		id := w.submit()
		w.aijob(id)
		_, err := w.store.Cancel(t.Context(), id, "alice")
		require.NoError(t, err)
		cancelled(w, id)
		w.awaitGone(d)
	})
	t.Run("while no replica ran", func(t *testing.T) {
		w := newWorld(t)
		_, end := w.replica()
		id := w.submit()
		w.aijob(id)
		end()
		_, err := w.store.Cancel(t.Context(), id, "alice")
		require.NoError(t, err)
		w.replica()
		cancelled(w, id)
	})
}

func TestAnotherReplicaFindsWhatOneLeftBehind(t *testing.T) {
	w := newWorld(t)
	_, end := w.replica()
	id := w.submit()
	uid := w.aijob(id).UID
	end()
	w.store.expireLeases()
	w.replica()
	w.eventually("leased again", func(c *assert.CollectT) {
		job, err := w.store.Get(t.Context(), id)
		require.NoError(c, err)
		assert.EqualValues(c, 2, job.Fence)
	})
	w.reaches(id, aiplatformv1alpha1.AIJobSucceeded)
	w.awaitStatus(id, jobs.Succeeded)
	assert.Equal(t, uid, w.aijob(id).UID)
}

func TestAReplicaThatLostItsLeaseSaysNothingMore(t *testing.T) {
	w := newWorld(t)
	d, _ := w.replica()
	id := w.submit()
	w.aijob(id)
	w.store.mu.Lock()
	w.store.jobs[id].Fence++ // another replica's
	w.store.leased[id] = time.Now().Add(time.Hour)
	w.store.mu.Unlock()
	w.reaches(id, aiplatformv1alpha1.AIJobSucceeded)
	w.awaitGone(d)
	job, err := w.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, jobs.Queued, job.Status)
}

func TestADeletedAIJobFailsItsJob(t *testing.T) {
	w := newWorld(t)
	w.replica()
	id := w.submit()
	aijob := w.aijob(id)
	require.NoError(t, w.cluster.direct.Delete(t.Context(), aijob))
	job := w.awaitStatus(id, jobs.Failed)
	assert.Equal(t, "AIJob job-"+id+" in namespace "+w.namespace+" was deleted before the job ended", job.Error)
}

func TestARefusedAIJobFailsItsJob(t *testing.T) {
	w := newWorld(t)
	w.replica()
	t.Run("by the schema", func(t *testing.T) {
		job := w.awaitStatus(w.submit(func(job *jobs.Job) { job.Gang = jobs.Gang{Enabled: true, MinMembers: 1} }), jobs.Failed)
		assert.Contains(t, job.Error, "spec.gang.minMembers: is 1, but a gang has at least 2 members")
	})
	t.Run("by the namespace", func(t *testing.T) {
		job := w.awaitStatus(w.submit(func(job *jobs.Job) { job.Namespace = "nowhere" }), jobs.Failed)
		assert.Contains(t, job.Error, `namespaces "nowhere" not found`)
	})
	t.Run("by a policy", func(t *testing.T) {
		in := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.namespace}}
		policy := &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionv1.MatchResources{NamespaceSelector: in, ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule:       admissionv1.Rule{APIGroups: []string{"aiplatform.example.com"}, APIVersions: []string{"*"}, Resources: []string{"aijobs"}},
					},
				}}},
				Validations: []admissionv1.Validation{{Expression: "false", Message: "no jobs today", Reason: ptr.To(metav1.StatusReasonForbidden)}},
			},
		}
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}
		require.NoError(t, w.admin.Create(t.Context(), policy))
		require.NoError(t, w.admin.Create(t.Context(), binding))
		w.eventually("the policy holds", func(c *assert.CollectT) { assert.ErrorContains(c, w.dryRun(w.namespace), "no jobs today") })
		assert.Contains(t, w.awaitStatus(w.submit(), jobs.Failed).Error, "no jobs today")
		require.NoError(t, w.admin.Delete(t.Context(), binding))
		require.NoError(t, w.admin.Delete(t.Context(), policy))
		w.eventually("the policy is gone", func(c *assert.CollectT) { assert.NoError(c, w.dryRun(w.namespace)) })
	})
	for id, change := range map[string]func(*aiplatformv1alpha1.AIJob){
		"taken": func(other *aiplatformv1alpha1.AIJob) { other.Labels = nil },
		// A user that may create AIJobs in the namespace can forge the labels.
		"forged":             func(other *aiplatformv1alpha1.AIJob) { other.Spec.Image = "registry.example.com/mine:1" },
		"that-of-more":       func(other *aiplatformv1alpha1.AIJob) { other.Spec.Command = []string{"steal"} },
		"of-another-account": func(other *aiplatformv1alpha1.AIJob) { other.Spec.ServiceAccountName = "admin" },
	} {
		t.Run("because the name is "+id, func(t *testing.T) {
			job := w.job()
			job.ID = id
			other, err := newAIJob(job, "")
			require.NoError(t, err)
			change(other)
			require.NoError(t, w.cluster.direct.Create(t.Context(), other))
			w.store.mu.Lock()
			job.Status = jobs.Queued
			w.store.jobs[id] = job
			w.store.mu.Unlock()
			assert.Contains(t, w.awaitStatus(id, jobs.Failed).Error, "AIJob job-"+id+" exists, but")
		})
	}
}

// A whole backlog would fail when it passes.
func TestAJobWaitsForAQuota(t *testing.T) {
	w := newWorld(t)
	d, _ := w.replica()
	const counted = "count/aijobs.aiplatform.example.com"
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "jobs"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("0")}},
	}
	require.NoError(t, w.admin.Create(t.Context(), quota))
	before := quota.DeepCopy()
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{counted: resource.MustParse("0")}
	require.NoError(t, w.admin.Status().Patch(t.Context(), quota, client.MergeFrom(before)))

	id := w.submit()
	w.eventually("it is tried several times", func(c *assert.CollectT) {
		assert.Greater(c, testutil.ToFloat64(d.metrics.requests.WithLabelValues("create", "error")), 2.0)
	})
	job, err := w.store.Get(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, job.Status.Ended())

	late := w.submit()
	w.eventually("it is leased for too long", func(c *assert.CollectT) {
		job, err := w.store.Get(t.Context(), late)
		require.NoError(c, err)
		assert.NotZero(c, job.Fence)
		d.change(late, job.Fence, func(t *task) { t.since = time.Now().Add(-2 * forbiddenFor) })
	})
	w.eventually("that ends its try", func(c *assert.CollectT) {
		job, err := w.store.Get(t.Context(), late)
		require.NoError(c, err)
		assert.Contains(c, job.Error, "exceeded quota")
	})
	require.NoError(t, w.admin.Delete(t.Context(), quota))

	w.aijob(id)
}

// So does one whose namespace lets the service create nothing for a while, for example while its ClusterRoleBinding is made again.
func TestAJobWaitsForARight(t *testing.T) {
	w := newWorld(t)
	user := "service-of-" + w.namespace
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{aiplatformv1alpha1.GroupName}, Resources: []string{"aijobs", "aijobs/status", "aijobqueues"}, Verbs: []string{"*"},
	}}}
	binding := func() *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
	}
	require.NoError(t, w.admin.Create(t.Context(), role))
	require.NoError(t, w.admin.Create(t.Context(), binding()))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		assert.NoError(t, w.admin.Delete(ctx, role))
		assert.NoError(t, client.IgnoreNotFound(w.admin.Delete(ctx, binding())))
	})
	config := api.Config(t)
	config.Impersonate.UserName = user
	w.cluster = newCluster(t, config)
	d, _ := w.replica()
	w.aijob(w.submit())

	require.NoError(t, w.admin.Delete(t.Context(), binding()))
	w.eventually("the right is gone", func(c *assert.CollectT) {
		assert.True(c, apierrors.IsForbidden(w.dryRun(w.namespace)))
	})
	waits, late := w.submit(), w.submit()
	w.eventually("it is tried several times", func(c *assert.CollectT) {
		assert.Greater(c, testutil.ToFloat64(d.metrics.requests.WithLabelValues("create", "error")), 5.0)
	})
	for _, id := range []string{waits, late} {
		job, err := w.store.Get(t.Context(), id)
		require.NoError(t, err)
		assert.False(t, job.Status.Ended(), job.Error)
		assert.EqualValues(t, 1, job.Fence, "its lease is kept")
	}
	d.change(late, 1, func(t *task) { t.since = time.Now().Add(-2 * forbiddenFor) })
	assert.Contains(t, w.awaitStatus(late, jobs.DeadLetter).Error, `cannot create resource "aijobs"`)

	require.NoError(t, w.admin.Create(t.Context(), binding()))
	w.aijob(waits)
	w.reaches(waits, aiplatformv1alpha1.AIJobRunning)
	w.awaitStatus(waits, jobs.Running)
	w.reaches(waits, aiplatformv1alpha1.AIJobSucceeded)
	w.awaitStatus(waits, jobs.Succeeded)
}

func TestANamespaceThatIsBeingDeletedFailsItsJobs(t *testing.T) {
	w := newWorld(t)
	w.replica()
	going := w.newNamespace()
	// No controller empties it here, so that it stays as it is.
	require.NoError(t, w.admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}}))
	w.eventually("nothing can be created there", func(c *assert.CollectT) {
		assert.True(c, apierrors.HasStatusCause(w.dryRun(going), corev1.NamespaceTerminatingCause))
	})
	job := w.awaitStatus(w.submit(func(job *jobs.Job) { job.Namespace = going }), jobs.Failed)
	assert.Contains(t, job.Error, "because it is being terminated")
	assert.EqualValues(t, 1, job.Fence, "at the first try")
}

func TestARequeuedJobRunsAgain(t *testing.T) {
	inItsAIJob := func(t *testing.T, ended time.Duration) {
		w := newWorld(t)
		w.replica()
		id := w.submit()
		w.aijob(id)
		w.reaches(id, aiplatformv1alpha1.AIJobDeadLetter, func(s *aiplatformv1alpha1.AIJobStatus) {
			at := metav1.NewTime(time.Now().Add(ended))
			s.CompletionTime = &at
		})
		w.awaitStatus(id, jobs.DeadLetter)
		_, err := w.store.Requeue(t.Context(), id, "alice")
		require.NoError(t, err)
		w.eventually("the AIJob is requeued", func(c *assert.CollectT) {
			assert.Contains(c, w.aijob(id).Annotations, aiplatformv1alpha1.AnnotationRequeue)
		})
		// As the operator does it.
		aijob := w.aijob(id)
		before := aijob.DeepCopy()
		delete(aijob.Annotations, aiplatformv1alpha1.AnnotationRequeue)
		require.NoError(t, w.cluster.direct.Patch(t.Context(), aijob, client.MergeFrom(before)))
		w.reaches(id, aiplatformv1alpha1.AIJobRunning, func(s *aiplatformv1alpha1.AIJobStatus) { s.CompletionTime = nil })
		w.awaitStatus(id, jobs.Running)
		w.reaches(id, aiplatformv1alpha1.AIJobSucceeded)
		w.awaitStatus(id, jobs.Succeeded)
	}
	t.Run("in the AIJob that it had", func(t *testing.T) { inItsAIJob(t, -time.Minute) })
	t.Run("in the AIJob that it had, of an operator whose clock is ahead", func(t *testing.T) { inItsAIJob(t, time.Minute) })
	t.Run("in a new one when that is gone", func(t *testing.T) {
		w := newWorld(t)
		w.replica()
		id := w.submit()
		first := w.aijob(id)
		w.reaches(id, aiplatformv1alpha1.AIJobDeadLetter)
		w.awaitStatus(id, jobs.DeadLetter)
		require.NoError(t, w.cluster.direct.Delete(t.Context(), first))
		_, err := w.store.Requeue(t.Context(), id, "alice")
		require.NoError(t, err)
		assert.NotEqual(t, first.UID, w.aijob(id).UID)
	})
}

func TestAIJobsAreDeletedSomeTimeAfterTheirEnd(t *testing.T) {
	w := newWorld(t)
	w.replica(func(s *Settings) { s.TTL = time.Second })
	done, running := w.submit(), w.submit()
	foreign := w.job()
	foreign.ID = "foreign"
	other, err := newAIJob(foreign, "")
	require.NoError(t, err)
	require.NoError(t, w.cluster.direct.Create(t.Context(), other), "of another installation of the service")
	w.reaches("foreign", aiplatformv1alpha1.AIJobSucceeded)
	w.reaches(running, aiplatformv1alpha1.AIJobRunning)
	w.reaches(done, aiplatformv1alpha1.AIJobSucceeded)
	w.awaitStatus(done, jobs.Succeeded)
	w.eventually("the AIJob is deleted", func(c *assert.CollectT) {
		err := w.cluster.direct.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + done}, &aiplatformv1alpha1.AIJob{})
		assert.True(c, apierrors.IsNotFound(err), err)
	})
	w.aijob(running)
	w.aijob("foreign")
}

// between is a store that has something happen once it was asked for a job.
type between struct {
	*store

	meanwhile map[string]func()
}

func (b *between) Get(ctx context.Context, id string) (jobs.Job, error) {
	job, err := b.store.Get(ctx, id)
	if then := b.meanwhile[id]; then != nil {
		delete(b.meanwhile, id)
		then()
	}
	return job, err
}

func TestTheSweepSparesAnAIJobThatIsQueuedAgainMeanwhile(t *testing.T) {
	w := newWorld(t)
	_, end := w.replica()
	id, other := w.submit(), w.submit()
	for _, id := range []string{id, other} {
		w.aijob(id)
		w.reaches(id, aiplatformv1alpha1.AIJobDeadLetter)
		w.awaitStatus(id, jobs.DeadLetter)
	}
	end()
	before := w.aijob(id)
	for _, id := range []string{id, other} {
		w.eventually("it is known", func(c *assert.CollectT) {
			aijob := &aiplatformv1alpha1.AIJob{}
			require.NoError(c, w.cluster.cached.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + id}, aijob))
			assert.Equal(c, aiplatformv1alpha1.AIJobDeadLetter, aijob.Status.Phase)
		})
	}

	store := &between{store: w.store, meanwhile: map[string]func(){id: func() {
		_, err := w.store.Requeue(t.Context(), id, "alice")
		require.NoError(t, err)
		w.replica()
		w.eventually("another replica requeues the AIJob", func(c *assert.CollectT) {
			assert.Contains(c, w.aijob(id).Annotations, aiplatformv1alpha1.AnnotationRequeue)
		})
	}}}
	s := settings()
	s.TTL = 0
	sweeping := NewDispatcher(w.cluster, store, s, NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, sweeping.sweepOnce(t.Context()))

	require.Empty(t, store.meanwhile)
	after := w.aijob(id)
	assert.Equal(t, before.UID, after.UID)
	assert.Nil(t, after.DeletionTimestamp)
	err := w.cluster.direct.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: namePrefix + other}, &aiplatformv1alpha1.AIJob{})
	assert.True(t, apierrors.IsNotFound(err), "the sweep deletes the others: %v", err)
}

func TestNoMoreWaitInTheClusterThanMay(t *testing.T) {
	w := newWorld(t)
	w.replica(func(s *Settings) { s.MaxWaiting = 3 })
	for range 10 {
		w.submit()
	}
	count := func() []aiplatformv1alpha1.AIJob {
		var all aiplatformv1alpha1.AIJobList
		require.NoError(t, w.cluster.direct.List(t.Context(), &all, client.InNamespace(w.namespace)))
		return all.Items
	}
	w.eventually("3 AIJobs", func(c *assert.CollectT) { assert.Len(c, count(), 3) })
	stays(func() { require.LessOrEqual(t, len(count()), 3) })
	w.reaches(idOf(&count()[0]), aiplatformv1alpha1.AIJobRunning)
	w.eventually("one that runs makes room for one that waits", func(c *assert.CollectT) { assert.Len(c, count(), 4) })
}

func TestOutagesAreWaitedOut(t *testing.T) {
	t.Run("of the store", func(t *testing.T) {
		w := newWorld(t)
		d, _ := w.replica()
		id := w.submit()
		w.aijob(id)
		w.store.setDown(true)
		w.reaches(id, aiplatformv1alpha1.AIJobSucceeded)
		w.eventually("it is tried", func(c *assert.CollectT) {
			w.store.mu.Lock()
			defer w.store.mu.Unlock()
			assert.Greater(c, w.store.calls["complete"], 1)
		})
		w.store.setDown(false)
		w.awaitStatus(id, jobs.Succeeded)
		w.awaitGone(d)
	})
	t.Run("of the API server", func(t *testing.T) {
		w := newWorld(t)
		down := &outage{}
		config := api.Config(t)
		config.Wrap(down.wrap)
		w.cluster = newCluster(t, config)
		d, _ := w.replica()
		first := w.submit()
		w.aijob(first)
		down.set(http.StatusServiceUnavailable)
		second := w.submit()
		w.eventually("it is tried", func(c *assert.CollectT) { assert.Greater(c, down.refused(), 2) })
		job, err := w.store.Get(t.Context(), second)
		require.NoError(t, err)
		assert.False(t, job.Status.Ended(), "the job waits for the API server")
		assert.EqualValues(t, 1, job.Fence, "and its lease is kept")
		down.set(http.StatusTooManyRequests)
		w.eventually("it is tried", func(c *assert.CollectT) { assert.Greater(c, down.refused(), 4) })
		down.set(0)
		w.aijob(second)
		for _, id := range []string{first, second} {
			w.reaches(id, aiplatformv1alpha1.AIJobSucceeded)
			w.awaitStatus(id, jobs.Succeeded)
		}
		w.awaitGone(d)
	})
}
