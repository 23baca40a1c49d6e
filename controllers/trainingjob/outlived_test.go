package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestPodsThatTheirSidecarsOutliveAreEnded(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(2))
	workers := builders.Workers(job).Obj()
	first, second := builders.Pod(workers, 0), builders.Pod(workers, 1)
	done, alsoDone := first.Succeeded("").Outlived().Obj(), second.Succeeded("").Outlived().Obj()
	for name, test := range map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"one succeeded, and the other trains": {[]*corev1.Pod{done, builders.Pod(workers, 1).Running().Outlived().Obj()}, nil},
		"both succeeded":                      {[]*corev1.Pod{done, alsoDone}, []string{done.Name + " Succeeded", alsoDone.Name + " Succeeded"}},
		"one succeeded, and the other ended":  {[]*corev1.Pod{done, builders.Pod(workers, 1).Succeeded("").Obj()}, []string{done.Name + " Succeeded"}},
		"one failed": {
			[]*corev1.Pod{done, builders.Pod(workers, 1).Failed(3).Outlived().Obj()}, []string{alsoDone.Name + " Failed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			d := plan(see(job, workers, test.pods...))
			for _, pod := range d.outlived {
				got = append(got, pod.Name+" "+string(pod.Phase))
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, mlv1.StateRunning, d.status.State, "the sidecars of the job may have to store its last checkpoint")
		})
	}
}

func TestATrainingIsNotCompleteWhileTheSidecarsOfItsPodsEnd(t *testing.T) {
	job := runningJob(t, builders.TrainingJob("bert").Workers(1))
	workers := builders.Workers(job).Condition(batchv1.JobComplete, "", "").Obj()
	pod := builders.Pod(workers, 0).Succeeded("").Outlived().Obj()
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: podend.ConditionEnded, Status: corev1.ConditionTrue, Reason: "Succeeded"})
	assert.Equal(t, mlv1.StateRunning, plan(see(job, workers, pod)).status.State)

	pod = builders.Pod(workers, 0).Succeeded("").Obj()
	assert.Equal(t, mlv1.StateCompleted, plan(see(job, workers, pod)).status.State)
}
