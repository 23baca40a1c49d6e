package trainingjob

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// warnings are the findings in words. Each names the field, what is missing and what to do.
func warnings(job *mlv1.TrainingJob, children []client.Object, found findings) []string {
	list := mistakes(job)
	for _, m := range found.missing {
		list = append(list, m.String())
	}
	claim := among[*corev1.PersistentVolumeClaim](children)
	if found.classes != nil {
		list = append(list, classWarnings(claim, found.classes)...)
	}
	workers := among[*batchv1.Job](children)
	list = append(list, ignoredVariables(job, workers)...)
	pod := withDefaults(workers.Spec.Template.Spec, found.ranges.Items)
	list = append(list, rangeWarnings(pod, claim, found.ranges.Items)...)
	list = append(list, quotaWarnings(job, demandOf(job, pod, children), found.quotas.Items)...)
	if err := found.trial.Forbidden; err != nil {
		list = append(list, fmt.Sprintf("the workers cannot be created at present: %v: the operator tries again every few seconds", err))
	}
	for _, said := range found.trial.Said {
		list = append(list, "the workers' Job: "+said)
	}
	return list
}

// ignoredVariables are variables of the spec that the workers do not get: they find each other by these.
func ignoredVariables(job *mlv1.TrainingJob, workers *batchv1.Job) []string {
	var list []string
	env := workers.Spec.Template.Spec.Containers[0].Env
	for i, variable := range job.Spec.Env {
		if !slices.ContainsFunc(env, func(has corev1.EnvVar) bool { return equality.Semantic.DeepEqual(has, variable) }) {
			list = append(list, fmt.Sprintf("spec.env[%d]: %s has no effect: the operator sets it, because workers find each other by it: remove it",
				i, variable.Name))
		}
	}
	return list
}

// defaultClassAnnotation marks the StorageClass of claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

func classWarnings(claim *corev1.PersistentVolumeClaim, classes []metav1.PartialObjectMetadata) []string {
	if !wantsClass(claim) {
		return nil
	}
	if claim.Spec.StorageClassName == nil {
		if slices.ContainsFunc(classes, func(class metav1.PartialObjectMetadata) bool {
			return class.Annotations[defaultClassAnnotation] == "true"
		}) {
			return nil
		}
		return []string{fmt.Sprintf("spec.checkpoint.storage.storageClassName: is not set, and the cluster has no default StorageClass: "+
			"name a class, or an existing claim in claimName; until then a new claim %s stays Pending", claim.Name)}
	}
	if slices.ContainsFunc(classes, func(class metav1.PartialObjectMetadata) bool { return class.Name == *claim.Spec.StorageClassName }) {
		return nil
	}
	return []string{review.Missing{Reference: review.Reference{
		Field: "spec.checkpoint.storage.storageClassName", Kind: kindStorageClass, Name: *claim.Spec.StorageClassName,
		Until: "a new claim " + claim.Name + " stays Pending",
	}}.String()}
}
