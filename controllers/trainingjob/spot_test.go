package trainingjob

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// onSpot is a job that asks for instances of the SpotInstanceVM gpus.
func onSpot(b *builders.TrainingJobBuilder) *builders.TrainingJobBuilder {
	return b.Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{Spot: &mlv1.SpotReference{Name: "gpus"}}
	})
}

// spotVM is a SpotInstanceVM with conditions "Type Status Reason" and a message.
func spotVM(list ...metav1.Condition) *spotv1alpha1.SpotInstanceVM {
	vm := &spotv1alpha1.SpotInstanceVM{}
	vm.Name, vm.Status.Conditions = "gpus", list
	return vm
}

func missing(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func TestPodsOfASpotJobAskForInstances(t *testing.T) {
	with := build.Workers(onSpot(builders.TrainingJob("bert")).Obj(), build.Settings{}, 0)
	long := onSpot(builders.TrainingJob("bert")).Obj()
	long.Spec.Scheduling.Spot.Name = strings.Repeat("x", 64)
	without := build.Workers(builders.TrainingJob("bert").Obj(), build.Settings{}, 0)

	assert.Equal(t, "gpus", with.Spec.Template.Labels[spotv1alpha1.LabelSpotInstanceVM])
	assert.NotContains(t, with.Labels, spotv1alpha1.LabelSpotInstanceVM, "the pods ask, not the Job")
	assert.NotContains(t, build.Workers(long, build.Settings{}, 0).Spec.Template.Labels, spotv1alpha1.LabelSpotInstanceVM, "no SpotInstanceVM has such a name")
	assert.NotContains(t, without.Spec.Template.Labels, spotv1alpha1.LabelSpotInstanceVM)
}

func TestASpotJobSaysWhyItHasNoInstances(t *testing.T) {
	provisioning := missing(reasons.ConditionReady, reasons.Provisioning, "1 instance is being created")
	for name, test := range map[string]struct {
		vm                         *spotv1alpha1.SpotInstanceVM
		capacity, waiting, message string
	}{
		"there is no such thing": {
			nil, "False SpotInstanceVMNotFound", "SpotInstanceVMNotFound", "there is no SpotInstanceVM gpus in namespace default, so that no instance is " +
				"created for workers that fit on no node: create it, or correct spec.scheduling.spot; pod bert-training-0-a0 fits on no node: 0/1 nodes",
		},
		"nothing is known to be wrong": {
			spotVM(), "True SpotInstanceVMReady", "Provisioning", "waits for an instance of SpotInstanceVM gpus: pod bert-training-0-a0 fits on no node: 0/1 nodes",
		},
		"an instance is on its way": {
			spotVM(provisioning), "True SpotInstanceVMReady", "Provisioning", "waits for an instance of SpotInstanceVM gpus: pod bert-training-0-a0 fits on no node: 0/1 nodes",
		},
		"no zone has one": {
			spotVM(missing(reasons.ConditionCapacityAvailable, reasons.ZoneExhausted, "no T4 in us-central1-a")),
			"False ZoneExhausted", "ZoneExhausted", "SpotInstanceVM gpus: no T4 in us-central1-a; pod bert-training-0-a0 fits on no node: 0/1 nodes",
		},
		"the namespace may not have instances": {
			spotVM(missing(reasons.ConditionReady, reasons.NamespaceNotAllowed, "x"), missing(reasons.ConditionCapacityAvailable, "X", "x"),
				missing(reasons.ConditionAllowed, reasons.NamespaceNotAllowed, "kubectl label namespace")),
			"False NamespaceNotAllowed", "NamespaceNotAllowed", "SpotInstanceVM gpus: kubectl label namespace; pod bert-training-0-a0 fits on no node: 0/1 nodes",
		},
		"the credentials are the cause": {
			spotVM(missing(reasons.ConditionReady, reasons.Provisioning, ""), missing(reasons.ConditionCapacityAvailable, "X", "x"),
				missing(reasons.ConditionCredentialsValid, reasons.SecretNotFound, "create Secret gcp")),
			"False SecretNotFound", "SecretNotFound", "SpotInstanceVM gpus: create Secret gcp; pod bert-training-0-a0 fits on no node: 0/1 nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := onSpot(builders.TrainingJob("bert")).Obj()
			workers := builders.Workers(job).Obj()
			o := see(job, workers, builders.Pod(workers, 0).Unschedulable("0/1 nodes.").Obj())
			o.spotVM = test.vm

			d := plan(o.after(time.Minute))

			assert.Equal(t, test.capacity, outlineOf(d).Conditions["SpotCapacity"])
			assert.Equal(t, test.waiting, d.status.Reason)
			assert.Equal(t, test.message, waitingMessage(&d.status))
		})
	}
}

func TestAJobWithoutSpotSaysNothingOfIt(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	workers := builders.Workers(job).Obj()
	d := plan(see(job, workers, builders.Pod(workers, 0).Unschedulable("0/1 nodes.").Obj()).after(time.Minute))
	assert.NotContains(t, outlineOf(d).Conditions, "SpotCapacity")
	assert.Equal(t, reasons.Unschedulable, d.status.Reason)
}

func TestCapacityIsToldWhenItChanges(t *testing.T) {
	status := func(condition metav1.ConditionStatus, reason string) *mlv1.TrainingJobStatus {
		return &mlv1.TrainingJobStatus{Conditions: []metav1.Condition{{Type: "SpotCapacity", Status: condition, Reason: reason, Message: "m"}}}
	}
	none, good, bad, worse := &mlv1.TrainingJobStatus{}, status("True", "SpotInstanceVMReady"), status("False", "ZoneExhausted"), status("False", "ProviderQuotaExceeded")
	assert.Empty(t, noticeEvents(none, good), "there is no problem to tell")
	assert.Empty(t, noticeEvents(bad, bad))
	assert.Equal(t, []reporting.Event{reporting.Warning("SpotCapacityMissing", "Preempt", "ZoneExhausted: m")}, noticeEvents(good, bad))
	assert.Equal(t, []reporting.Event{reporting.Warning("SpotCapacityMissing", "Preempt", "ProviderQuotaExceeded: m")}, noticeEvents(bad, worse))
	assert.Equal(t, []reporting.Event{reporting.Normal("SpotCapacityAvailable", "Preempt", "m")}, noticeEvents(worse, good))
}
