package trainingjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// spotCapacity is what is known of the SpotInstanceVM that the job names.
func (o *observed) spotCapacity() (available bool, reason, message string) {
	name := build.SpotName(o.job)
	if o.spotVM == nil {
		return false, reasons.SpotInstanceVMNotFound, fmt.Sprintf(
			"there is no SpotInstanceVM %s in namespace %s, so that no instance is created for workers that fit on no node: "+
				"create it, or correct spec.scheduling.spot", name, o.job.Namespace)
	}
	// The first that explains the others: without an allowance nothing is asked for, and without credentials there is no capacity.
	for _, kind := range []string{
		reasons.ConditionAllowed, reasons.ConditionCredentialsValid, reasons.ConditionCapacityAvailable, reasons.ConditionReady,
	} {
		is := meta.FindStatusCondition(o.spotVM.Status.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || is.Reason == reasons.Provisioning {
			continue
		}
		return false, is.Reason, clip(fmt.Sprintf("SpotInstanceVM %s: %s", name, is.Message), maxMessage)
	}
	return true, reasons.SpotInstanceVMReady, fmt.Sprintf("SpotInstanceVM %s creates instances for workers that fit on no node", name)
}

// waitingForInstance says why a worker that fits on no node still waits, where an instance may be created for it.
func (o *observed) waitingForInstance(reason, message string) (string, string) {
	if reason != reasons.Unschedulable || build.SpotName(o.job) == "" {
		return reason, message
	}
	available, why, words := o.spotCapacity()
	fits, _, _ := strings.Cut(message, "; ") // the remedy is for clusters that do not grow
	if !available {
		return why, words + "; " + fits
	}
	return reasons.Provisioning, fmt.Sprintf("waits for an instance of SpotInstanceVM %s: %s", build.SpotName(o.job), fits)
}

// PodsWithoutPlace are the pods that a job is going to have once its AIJobQueue admits it, when all that it waits for is room for
// them. The SpotInstanceVM that the job names can make the room; without one there are none. Since the pods do not exist, they were
// created when the job was queued.
func PodsWithoutPlace(job *mlv1.TrainingJob, settings build.Settings) []*corev1.Pod {
	lacksRoom := reporting.Reason(job.Status.Conditions, reasons.ConditionAdmitted) == reasons.InsufficientCapacity
	if build.SpotName(job) == "" || admissionState(job) != queueing.Waiting || !lacksRoom {
		return nil
	}
	template := build.Workers(job, settings, 0).Spec.Template
	spec := podbuild.LimitsAsRequests(&template.Spec)
	var pods []*corev1.Pod
	for index := range job.Spec.NumWorkers {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *spec}
		pod.Namespace, pod.Name = job.Namespace, fmt.Sprintf("%s-%d", build.WorkersName(job), index)
		pod.CreationTimestamp = job.CreationTimestamp
		if queued := job.Status.Admission.QueuedTime; queued != nil {
			pod.CreationTimestamp = *queued
		}
		pods = append(pods, pod)
	}
	return pods
}
