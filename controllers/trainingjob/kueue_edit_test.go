package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// heldJob is the Job of a job that waits in a queue of Kueue, as the API server has it.
func heldJob(t *testing.T, job *mlv1.TrainingJob) *batchv1.Job {
	t.Helper()
	o := see(job, nil)
	o.kueue = true
	d := plan(o)
	require.True(t, d.hasWorkers())
	held := d.apply[len(d.apply)-1].(*batchv1.Job).DeepCopy()
	held.UID, held.ResourceVersion = types.UID("held"), "7"
	held.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "held"}}
	for name, value := range map[string]string{batchv1.ControllerUidLabel: "held", child.LabelNotInBackup: "true"} {
		held.Spec.Template.Labels[name] = value
	}
	return held
}

// seeHeld is what is observed of a job whose spec was edited, while Kueue holds its Job.
func seeHeld(t *testing.T, job *mlv1.TrainingJob, held *batchv1.Job, pods ...*corev1.Pod) observed {
	t.Helper()
	cached, err := bareJob(held.DeepCopy())
	require.NoError(t, err)
	o := see(job, cached.(*batchv1.Job), pods...)
	if o.isOutdated() && isHeldByKueue(o.workers) {
		o.held = held
	}
	return o
}

func TestAnEditOfAJobThatKueueHolds(t *testing.T) {
	place := func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{NodeSelector: map[string]string{"zone": "b"}}
	}
	type edit = func(*mlv1.TrainingJobSpec)
	const amended, requeued, deleted, left = "amended", "requeued", "deleted", "left"
	for name, test := range map[string]struct {
		edit  edit
		state mlv1.State
		// reason of the state.
		reason string
		// stored changes what the API server has of the Job.
		stored func(*batchv1.Job)
		want   string
	}{
		"no edit":                          {want: left},
		"an edit that no Job is made from": {edit: func(s *mlv1.TrainingJobSpec) { s.TTLSecondsAfterFinished = ptr.To[int32](9) }, want: left},
		"a node selector":                  {edit: place, want: amended},
		"an image, about which the API server decides": {edit: func(s *mlv1.TrainingJobSpec) { s.Image = "other:v1" }, want: amended},
		"after an eviction":                            {edit: place, state: mlv1.StateSuspended, reason: reasons.EvictedByQueue, want: amended},
		"a spec that cannot be met": {edit: func(s *mlv1.TrainingJobSpec) {
			s.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		}, want: requeued},
		"it was decided to replace the Job": {edit: place, reason: reasons.RequeuedAfterEdit, want: deleted},
		"Kueue has let it go": {edit: place, want: requeued, stored: func(held *batchv1.Job) {
			held.Spec.Suspend = ptr.To(false)
		}},
		"Kueue has let it go after an eviction": {edit: place, state: mlv1.StateSuspended, reason: reasons.EvictedByQueue, want: requeued, stored: func(held *batchv1.Job) {
			held.Spec.Suspend = ptr.To(false)
		}},
		"Kueue is about to restore its pod template": {edit: place, want: left, stored: func(held *batchv1.Job) {
			held.Annotations[kueueStopping] = "true"
		}},
		"its pods are being stopped": {edit: place, state: mlv1.StateSuspended, reason: reasons.EvictedByQueue, want: left, stored: func(held *batchv1.Job) {
			held.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
		}},
		"Kueue restored the pod template of an earlier spec": {state: mlv1.StateSuspended, reason: reasons.EvictedByQueue, want: amended, stored: func(held *batchv1.Job) {
			held.Spec.Template.Annotations[mlv1.AnnotationGeneration] = "0"
		}},
		"it runs": {edit: place, state: mlv1.StateInitializing, reason: reasons.WorkersStarting, want: left},
	} {
		t.Run(name, func(t *testing.T) {
			job := queued().Obj()
			job.Generation = 1
			held := heldJob(t, job)
			if test.stored != nil {
				test.stored(held)
			}
			if test.edit != nil {
				job.Generation = 2
				test.edit(&job.Spec)
			}
			if job.Status.State, job.Status.Reason = test.state, test.reason; test.state == "" {
				job.Status.State = mlv1.StatePending
			}
			job.Status.StartCount = 1
			d := plan(seeHeld(t, job, held))
			is := left
			switch {
			case d.amend != nil:
				is = amended
			case len(d.delete) > 0:
				is = deleted
			case d.status.Reason == reasons.RequeuedAfterEdit:
				is = requeued
			}
			assert.Equal(t, test.want, is)
			if test.want != left {
				assert.Equal(t, job.Status.State, d.status.State, "it does not count as started")
			}
		})
	}
}

func TestTheJobThatKueueHoldsIsMadeFromTheEditedSpec(t *testing.T) {
	job := queued().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{
			NodeSelector: map[string]string{"zone": "a", "disk": "fast"}, Tolerations: []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}},
		}
	}).Obj()
	job.Generation = 1
	held := heldJob(t, job)
	was := held.DeepCopy()
	job.Generation, job.Status.State, job.Status.StartCount = 2, mlv1.StatePending, 1
	job.Spec.Scheduling.NodeSelector = map[string]string{"zone": "b"}
	job.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")}}
	assert.Equal(t, []string{"spec.resources", "spec.scheduling"}, build.EditedFields(held, job))

	next := plan(seeHeld(t, job, held)).amend

	require.NotNil(t, next)
	assert.Equal(t, was, held, "what was read stays, to tell the difference")
	assert.Equal(t, "7", next.ResourceVersion)
	assert.True(t, build.IsOf(next, job))
	template := next.Spec.Template
	assert.Equal(t, map[string]string{"zone": "b"}, template.Spec.NodeSelector)
	assert.Equal(t, []corev1.Toleration{
		{Key: "spot", Operator: corev1.TolerationOpExists}, {Key: mlv1.AnnotationGeneration, Operator: corev1.TolerationOpEqual, Value: "2"},
	}, template.Spec.Tolerations, "by which Kueue sees a difference")
	assert.Equal(t, resource.MustParse("3Gi"), template.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory])

	// All else is as it was.
	next.Annotations, template.Annotations = was.Annotations, was.Spec.Template.Annotations
	template.Spec.NodeSelector, template.Spec.Tolerations = was.Spec.Template.Spec.NodeSelector, was.Spec.Template.Spec.Tolerations
	template.Spec.Containers[0].Resources = was.Spec.Template.Spec.Containers[0].Resources
	next.Spec.Template = template
	assert.Equal(t, was, next)
}

// That a Job is replaced is told before it is done, and the next one waits as it did.
func TestAJobThatCannotBeAmendedIsReplaced(t *testing.T) {
	for _, evicted := range []bool{false, true} {
		job := queued().Obj()
		job.Generation = 1
		held := heldJob(t, job)
		job.Status = plan(seeHeld(t, job, held)).status
		state := mlv1.StatePending
		if evicted {
			state = mlv1.StateSuspended
			job.Status.State, job.Status.Reason = state, reasons.EvictedByQueue
		}
		job.Generation, job.Spec.Image = 2, "other:v1"
		job.Spec.Env = []corev1.EnvVar{{Name: "MODE", Value: "careful"}}

		d := planRequeue(seeHeld(t, job, held))
		message := "spec.env, spec.image changed: another Job is made, which waits in LocalQueue team-a as a new one"
		assert.Equal(t, state, d.status.State)
		assert.Equal(t, message, waitingMessage(&d.status))
		assert.Equal(t, time.Millisecond, d.again)
		told := eventsOf(job, &d.status)
		require.Len(t, told, 1)
		assert.Equal(t, [2]string{reasons.RequeuedAfterEdit, message}, [2]string{told[0].Reason, told[0].Note})

		job.Status = d.status
		d = plan(seeHeld(t, job, held))
		assert.Equal(t, held.Name, d.delete[0].GetName())
		assert.Equal(t, reasons.RequeuedAfterEdit, d.status.Reason, "until it is gone")

		next := heldJob(t, job)
		assert.Equal(t, "other:v1", next.Spec.Template.Spec.Containers[0].Image)
		assert.EqualValues(t, 1, build.StartOf(next))
		assert.Equal(t, state, plan(seeHeld(t, job, next)).status.State, "it waits as before")
	}
}
