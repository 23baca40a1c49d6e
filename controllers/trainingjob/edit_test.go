package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// An edit is allowed until the status tells that the workers exist. Those that were made a moment before are replaced.
func TestWorkersOfAnEarlierSpecAreReplacedBeforeTheyCount(t *testing.T) {
	for name, test := range map[string]struct {
		state      mlv1.State
		made, is   int64
		labels     map[string]string
		started    int32
		wantDelete bool
		wantWait   bool
	}{
		"made from another spec, and counted":       {state: mlv1.StateSuspended, made: 1, is: 2, started: 1, wantDelete: true},
		"made from another spec, not counted yet":   {state: mlv1.StatePending, made: 1, is: 2, wantWait: true},
		"made from this spec":                       {state: mlv1.StatePending, made: 2, is: 2},
		"known, so that no edit was allowed":        {state: mlv1.StateInitializing, made: 1, is: 2, started: 1},
		"running, and its time to live was changed": {state: mlv1.StateRunning, made: 1, is: 2, started: 1},
	} {
		t.Run(name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Workers(1).Obj()
			job.Generation = test.made
			workers := builders.Workers(job).Obj()
			metav1.SetMetaDataAnnotation(&workers.ObjectMeta, mlv1.AnnotationGeneration, "1")
			if test.made == 2 {
				workers.Annotations[mlv1.AnnotationGeneration] = "2"
			}
			job.Generation, job.Status.State, job.Status.StartCount = test.is, test.state, test.started
			d := plan(see(job, workers))
			deleted := len(d.delete) == 1 && d.delete[0] == client.Object(workers)
			assert.Equal(t, test.wantDelete, deleted)
			if test.wantWait {
				assert.EqualValues(t, 1, d.status.StartCount, "it is counted first")
				assert.Equal(t, mlv1.StatePending, d.status.State)
				assert.Empty(t, d.delete)
			}
		})
	}
}

// Jobs of earlier releases do not tell what they were made from: an upgrade leaves them alone.
func TestWorkersThatDoNotTellTheirSpecAreKept(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).Obj()
	workers := builders.Workers(job).Obj()
	delete(workers.Annotations, mlv1.AnnotationGeneration)
	job.Generation, job.Status.StartCount = 7, 1
	assert.Empty(t, plan(see(job, workers)).delete)
}

func TestAPlaceForAnEarlierSpecIsNotTaken(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{QueueName: "q"}
	}).Obj()
	job.Generation = 2
	job.Status.Admission = &mlv1.AdmissionStatus{QueuedTime: ptr.To(metav1.NewTime(builders.Noon))}
	o := see(job, nil)
	o.decision = queueing.Decision{Admitted: &scheduler.Admission{UID: job.UID, Generation: 1, Nodes: []string{"n1"}}}
	d := plan(o)
	assert.Nil(t, d.status.Admission.AdmittedTime)
	assert.Equal(t, queueing.StaleDecision, d.again)
	o.decision.Admitted.Generation = 2
	assert.NotNil(t, plan(o).status.Admission.AdmittedTime)
}

// What the program is and how it learns can be corrected while the job is suspended, and it goes on from its checkpoint.
func TestAPIAJobIsEditedWhileItIsSuspended(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Image, s.Hyperparameters = "program:v1", &mlv1.Hyperparameters{Epochs: ptr.To[int32](3)}
	}))
	first := c.workers(job, 0)
	c.run(c.startPods(first)...)
	job = c.await(job, "Running", state(mlv1.StateRunning))
	edit := func(change func(*mlv1.TrainingJobSpec)) error {
		next := job.DeepCopy()
		change(&next.Spec)
		return c.Patch(t.Context(), next, client.MergeFrom(job))
	}
	require.ErrorContains(t, edit(func(s *mlv1.TrainingJobSpec) { s.Image = "program:v2" }), "spec.image: can be changed only while the job is suspended or queued")

	c.suspend(job, true)
	c.gone(first.DeepCopy())
	c.collectGarbage()
	job = c.await(job, "Suspended", state(mlv1.StateSuspended))
	require.NoError(t, edit(func(s *mlv1.TrainingJobSpec) {
		s.Image, s.NumWorkers, s.Hyperparameters.Epochs, s.Suspend = "program:v2", 3, ptr.To[int32](5), ptr.To(false)
		s.Env = []corev1.EnvVar{{Name: "MODE", Value: "careful"}}
	}))
	second := c.workers(job, 0)
	assert.Equal(t, "program:v2", second.Spec.Template.Spec.Containers[0].Image)
	assert.Contains(t, second.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "MODE", Value: "careful"})
	assert.EqualValues(t, 3, *second.Spec.Completions)
	c.run(c.startPods(second)...)
	job = c.await(job, "Running again", state(mlv1.StateRunning))
	assert.EqualValues(t, 3, job.Status.Workers.Total)
	assert.EqualValues(t, 5, job.Status.TotalEpochs)
	assert.Zero(t, job.Status.RestartCount)
}

// A job that another manager runs elsewhere is left to it.
func TestAPIAJobThatIsManagedElsewhereIsLeftAlone(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	away := c.submit(builders.TrainingJob("away").Spec(func(s *mlv1.TrainingJobSpec) { s.ManagedBy = mlv1.ManagedByMultiKueue }))
	here := c.submit(builders.TrainingJob("here").Spec(func(s *mlv1.TrainingJobSpec) { s.ManagedBy = mlv1.ManagedByOperator }))
	c.workers(here, 0)
	for _, write := range m.Written() {
		assert.NotContains(t, write, "away", "nothing is written for it")
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(away), away))
	assert.Zero(t, away.Status.ObservedGeneration)
}

// What keeps a job from starting is corrected in the job itself.
func TestAPIAJobThatWaitsForItsSpecStartsOnceThatIsCorrected(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(1).Spec(func(s *mlv1.TrainingJobSpec) {
		s.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}))
	job = c.await(job, "told", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.InvalidSpec })
	next := job.DeepCopy()
	next.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	require.NoError(t, c.Patch(t.Context(), next, client.MergeFrom(job)))
	var made batchv1.Job
	eventually(t, "the workers", func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "bert-training"}, &made) == nil
	})
	assert.Equal(t, "data", made.Spec.Template.Spec.Volumes[len(made.Spec.Template.Spec.Volumes)-1].Name)
}
