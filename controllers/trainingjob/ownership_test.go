package trainingjob

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// change changes an object as another manager does.
func (c *cluster) change(object client.Object, name string, change func()) {
	c.t.Helper()
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, object))
	before := object.DeepCopyObject().(client.Object)
	change()
	require.NoError(c.t, c.Patch(c.t.Context(), object, client.MergeFrom(before), client.FieldOwner("another-client")))
}

func TestAPIWhatOthersAddStaysAndWhatTheyChangeIsPutBack(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert"))
	c.await(job, "Initializing", state(mlv1.StateInitializing))

	t.Run("a label of another client on the Job stays", func(t *testing.T) {
		var workers batchv1.Job
		c.change(&workers, "bert-training", func() { workers.Labels["team"] = "a" })
		c.settled(m, job)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(&workers), &workers))
		assert.Equal(t, map[string]string{"team": "a", "training-job": "bert", "trainingjob": "bert", child.LabelNotInBackup: "true"}, workers.Labels)
	})
	t.Run("the headless Service", func(t *testing.T) {
		var service corev1.Service
		c.change(&service, "bert-headless", func() {
			service.Labels["team"] = "a"
			service.Spec.PublishNotReadyAddresses = false
			service.Spec.Selector["never"] = "true"
		})
		eventually(t, "the Service being put back", func() bool {
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(&service), &service))
			return service.Spec.PublishNotReadyAddresses
		})
		assert.Equal(t, map[string]string{"training-job": "bert"}, service.Spec.Selector)
		assert.Equal(t, "a", service.Labels["team"], "a label of another client stays")
	})
	t.Run("a port of the master Service", func(t *testing.T) {
		var service corev1.Service
		c.change(&service, "bert-master", func() { service.Spec.Ports[0].Port = 1 })
		want := build.MasterService(builders.TrainingJob("bert").Obj()).Spec.Ports
		eventually(t, "the Service being put back", func() bool {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(&service), &service)
			return err == nil && equality.Semantic.DeepEqual(want, service.Spec.Ports)
		})
		c.await(job, "still Initializing", state(mlv1.StateInitializing))
	})
	t.Run("a setting in the ConfigMap", func(t *testing.T) {
		var settings corev1.ConfigMap
		c.change(&settings, "bert-config", func() { settings.Data["model"], settings.Data["mine"] = "other", "x" })
		eventually(t, "the setting being put back", func() bool {
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(&settings), &settings))
			return settings.Data["model"] == "resnet50"
		})
		assert.Equal(t, "x", settings.Data["mine"], "a setting of another client stays")
	})
	t.Run("a Service that was deleted", func(t *testing.T) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "bert-headless", Namespace: c.namespace}}
		require.NoError(t, c.Delete(t.Context(), service))
		eventually(t, "the Service being made again", func() bool {
			return c.Get(t.Context(), client.ObjectKeyFromObject(service), service) == nil
		})
	})
	c.settled(m, job)
}

func TestAPIAJobThatLosesItsLabelIsNotLost(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert"))
	workers := c.workers(job, 0)
	pods := c.startPods(workers)
	c.run(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	c.change(workers, "bert-training", func() { delete(workers.Labels, "training-job") })

	eventually(t, "the label being put back", func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(workers), workers))
		return workers.Labels["training-job"] == "bert"
	})
	c.end(0, "", pods...)
	done := c.await(job, "Completed", state(mlv1.StateCompleted))
	assert.Zero(t, done.Status.RestartCount)
}

func TestAPIAJobThatIsDeletedUnderARunningTrainingIsStartedAgain(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert"))
	workers := c.workers(job, 0)
	c.run(c.startPods(workers)...)
	c.await(job, "Running", state(mlv1.StateRunning))

	require.NoError(t, c.Delete(t.Context(), workers, client.PropagationPolicy(metav1.DeletePropagationBackground)))

	now := c.await(job, "Restarting", state(mlv1.StateRestarting))
	assert.Equal(t, "Job bert-training was deleted", now.Status.FailureReason)
	c.workers(job, 1)
}

func TestAPIAForeignObjectIsLeftAlone(t *testing.T) {
	c := newCluster(t)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "bert-config", Namespace: c.namespace, Labels: map[string]string{"team": "a"}},
		Data:       map[string]string{"theirs": "x"},
	}
	require.NoError(t, c.Create(t.Context(), foreign))
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert"))

	now := c.await(job, "in conflict", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.ObjectConflict })

	assert.Equal(t, mlv1.StateInitializing, now.Status.State)
	assert.Equal(t, "False ObjectConflict", outlineOf(desired{status: now.Status}).Conditions["Initialized"])
	assert.Equal(t, "ConfigMap bert-config exists and does not belong to this TrainingJob: delete or rename it, or give the TrainingJob another name",
		waitingMessage(&now.Status))
	m.lookAgain(job, 3)
	after := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(foreign), after))
	assert.Empty(t, cmp.Diff(foreign, after), "an object of another owner must not be touched")

	require.NoError(t, c.Delete(t.Context(), foreign))
	c.await(job, "going on", func(job *mlv1.TrainingJob) bool { return job.Status.Reason != reasons.ObjectConflict })
}

func TestAPIAClaimKeptFromAnEarlierJobOfThisNameIsUsed(t *testing.T) {
	c := newCluster(t)
	kept := build.Claim(builders.TrainingJob("bert").Namespace(c.namespace).Checkpoints().Obj())
	require.NoError(t, c.Create(t.Context(), kept))
	c.start(nil)

	job := c.submit(builders.TrainingJob("bert").Checkpoints())

	c.await(job, "Initializing", state(mlv1.StateInitializing))
	after := &corev1.PersistentVolumeClaim{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(kept), after))
	assert.Empty(t, cmp.Diff(kept, after))
}

func TestAPIAMissingClaimKeepsTheJobPendingUntilItExists(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Claim("shared"))

	now := c.await(job, "waiting for its claim", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.ClaimNotFound })
	assert.Equal(t, mlv1.StatePending, now.Status.State)
	assert.Equal(t, "False ClaimNotFound", outlineOf(desired{status: now.Status}).Conditions["CheckpointReady"])
	assert.Len(t, c.versions(job), 1, "it has no children yet")

	require.NoError(t, c.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", Namespace: c.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}))
	m.lookAgain(job, 1) // which it does by itself every 15 seconds
	c.await(job, "Initializing", state(mlv1.StateInitializing))
	c.run(c.startPods(c.workers(job, 0))...)
	now = c.await(job, "Running", state(mlv1.StateRunning))
	assert.Equal(t, "True StorageReady", outlineOf(desired{status: now.Status}).Conditions["CheckpointReady"])
}

// What the webhook refuses is told by the status where a job got in without it.
func TestAPIAPodTemplateThatTheAPIRefusesFailsTheJob(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	for name, test := range map[string]struct {
		change func(*mlv1.TrainingJobSpec)
		why    string
	}{
		"affinity": {func(s *mlv1.TrainingJobSpec) {
			s.Scheduling = &mlv1.Scheduling{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "not a label"}},
			}}}
		}, "topologyKey"},
		"selector": {func(s *mlv1.TrainingJobSpec) {
			s.Scheduling = &mlv1.Scheduling{NodeSelector: map[string]string{"gpu": "not a value"}}
		}, "nodeSelector"},
		"variable": {func(s *mlv1.TrainingJobSpec) { s.Env = []corev1.EnvVar{{Name: "A=B", Value: "x"}} }, "A=B"},
		"resource": {func(s *mlv1.TrainingJobSpec) {
			s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"fpga": resource.MustParse("1")}}
		}, "fpga"},
		"user": {func(s *mlv1.TrainingJobSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](-1)}
		}, "runAsUser"},
	} {
		t.Run(name, func(t *testing.T) {
			job := c.submit(builders.TrainingJob(name).Spec(test.change))

			now := c.await(job, "Failed", state(mlv1.StateFailed))

			assert.Equal(t, reasons.InvalidSpec, now.Status.Reason)
			assert.Contains(t, now.Status.FailureReason, test.why)
			c.settled(m, job)
			err := c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name + "-training"}, &batchv1.Job{})
			assert.True(t, apierrors.IsNotFound(err), "no Job exists: %v", err)
		})
	}
}

func TestAPIAQuotaKeepsTheJobPendingUntilItIsRaised(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: c.namespace},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
		Status:     corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
	}
	require.NoError(t, c.Create(t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")},
		Used: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")},
	}
	require.NoError(t, c.Status().Update(t.Context(), quota))

	job := c.submit(builders.TrainingJob("bert"))

	now := c.await(job, "refused", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.ResourceQuotaExceeded })
	assert.Equal(t, mlv1.StatePending, now.Status.State)
	assert.Contains(t, waitingMessage(&now.Status), "exceeded quota")

	require.NoError(t, c.Delete(t.Context(), quota))
	c.await(job, "Initializing", state(mlv1.StateInitializing))
}
