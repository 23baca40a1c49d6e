package trainingjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// spotName is the SpotInstanceVM that the job names; empty when it names none.
func spotName(job *mlv1.TrainingJob) string {
	if s := job.Spec.Scheduling; s != nil && s.Spot != nil {
		return s.Spot.Name
	}
	return ""
}

// askForInstances puts the label on the pods by which a SpotInstanceVM knows that it may create instances for them. A name
// that is too long for a label is that of no SpotInstanceVM, which the condition says.
func askForInstances(job *mlv1.TrainingJob, template *corev1.PodTemplateSpec) {
	if name := spotName(job); name != "" && len(name) <= validation.LabelValueMaxLength {
		template.Labels[spotv1alpha1.LabelSpotInstanceVM] = name
	}
}

// followSpot says in a condition whether instances can be had for the workers.
func followSpot(o observed, d *desired) {
	if spotName(o.job) == "" {
		return
	}
	available, reason, message := spotCapacity(o)
	d.condition(o, mlv1.ConditionSpotCapacity, available, reason, message)
}

// spotCapacity is what is known of the SpotInstanceVM that the job names.
func spotCapacity(o observed) (available bool, reason, message string) {
	name := spotName(o.job)
	if o.spotVM == nil {
		return false, mlv1.ReasonSpotInstanceVMNotFound, fmt.Sprintf(
			"there is no SpotInstanceVM %s in namespace %s, so that no instance is created for workers that fit on no node: "+
				"create it, or correct spec.scheduling.spot", name, o.job.Namespace)
	}
	// The most telling first: what is wrong with the credentials explains that there is no capacity.
	for _, kind := range []string{
		spotv1alpha1.ConditionCredentialsValid, spotv1alpha1.ConditionCapacityAvailable, spotv1alpha1.ConditionReady,
	} {
		is := meta.FindStatusCondition(o.spotVM.Status.Conditions, kind)
		if is == nil || is.Status != metav1.ConditionFalse || is.Reason == spotv1alpha1.ReasonProvisioning {
			continue
		}
		return false, is.Reason, clip(fmt.Sprintf("SpotInstanceVM %s: %s", name, is.Message), maxMessage)
	}
	return true, mlv1.ReasonSpotInstanceReady, fmt.Sprintf("SpotInstanceVM %s creates instances for workers that fit on no node", name)
}

// waitingForInstance says why a worker that fits on no node still waits, where an instance may be created for it.
func waitingForInstance(o observed, reason, message string) (string, string) {
	if reason != mlv1.ReasonUnschedulable || spotName(o.job) == "" {
		return reason, message
	}
	available, why, words := spotCapacity(o)
	fits, _, _ := strings.Cut(message, "; ") // the remedy is for clusters that do not grow
	if !available {
		return why, words + "; " + fits
	}
	return mlv1.ReasonProvisioning, fmt.Sprintf("waits for an instance of SpotInstanceVM %s: %s", spotName(o.job), fits)
}
