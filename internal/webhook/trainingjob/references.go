package trainingjob

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

var kindStorageClass = schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}

// referencesOf are what the API server is to be asked about. Secrets are not among them: that one exists can only be seen with the
// permission to read it, and the operator has none to read its users' Secrets.
func referencesOf(job *mlv1.TrainingJob, children []client.Object) []review.Reference {
	made := map[string]bool{}
	for _, child := range children {
		switch c := child.(type) {
		case *corev1.PersistentVolumeClaim:
			made["claim "+c.Name] = true
		case *corev1.ServiceAccount:
			made["account "+c.Name] = true
		}
	}
	var list []review.Reference
	add := func(r review.Reference) {
		r.Namespace = job.Namespace
		if r.Kind == review.PriorityClass {
			r.Namespace = ""
		}
		if !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	pod := among[*batchv1.Job](children).Spec.Template.Spec
	if name := pod.ServiceAccountName; !made["account "+name] {
		add(review.Reference{Field: "spec.serviceAccountName", Kind: review.ServiceAccount, Name: name,
			Until: "the API server refuses the workers' pods"})
	}
	for _, volume := range pod.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil && !made["claim "+source.ClaimName] {
			add(review.Reference{Field: claimField(job, source.ClaimName), Kind: review.PersistentVolumeClaim, Name: source.ClaimName,
				Until: "the job waits"})
		}
	}
	for n := range job.Spec.Volumes {
		if source := job.Spec.Volumes[n].ConfigMap; source != nil && !ptr.Deref(source.Optional, false) {
			add(review.Reference{Field: fmt.Sprintf("spec.volumes[%d].configMap.name", n), Kind: review.ConfigMap, Name: source.Name,
				Until: "the workers cannot start"})
		}
	}
	if code := job.Spec.Source; code != nil && code.ConfigMap != nil {
		add(review.Reference{Field: "spec.source.configMap.name", Kind: review.ConfigMap, Name: code.ConfigMap.Name, Until: "the workers cannot start"})
	}
	for n, from := range job.Spec.EnvFrom {
		if source := from.ConfigMapRef; source != nil && !ptr.Deref(source.Optional, false) {
			add(review.Reference{Field: fmt.Sprintf("spec.envFrom[%d].configMapRef.name", n), Kind: review.ConfigMap, Name: source.Name,
				Until: "the workers cannot start"})
		}
	}
	for n, variable := range job.Spec.Env {
		if variable.ValueFrom == nil || variable.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}
		if from := variable.ValueFrom.ConfigMapKeyRef; !ptr.Deref(from.Optional, false) {
			add(review.Reference{Field: fmt.Sprintf("spec.env[%d].valueFrom.configMapKeyRef", n), Kind: review.ConfigMap,
				Name: from.Name, Key: from.Key, Until: "the workers cannot start"})
		}
	}
	if s := job.Spec.Scheduling; s != nil {
		if s.Priority != "" {
			add(review.Reference{Field: "spec.scheduling.priority", Kind: review.PriorityClass, Name: s.Priority,
				Until: "the API server refuses the workers' pods"})
		}
		if s.Spot != nil {
			add(review.Reference{Field: "spec.scheduling.spot.name", Kind: review.SpotInstanceVM, Name: s.Spot.Name,
				Until: "no spot instance is provisioned"})
		}
	}
	return list
}

// claimField is the field that names a claim.
func claimField(job *mlv1.TrainingJob, name string) string {
	if c := job.Spec.Checkpoint; c != nil && c.Storage.ClaimName == name {
		return "spec.checkpoint.storage.claimName"
	}
	for n := range job.Spec.Volumes {
		if source := job.Spec.Volumes[n].PersistentVolumeClaim; source != nil && source.ClaimName == name {
			return fmt.Sprintf("spec.volumes[%d].persistentVolumeClaim.claimName", n)
		}
	}
	return "spec.checkpoint.resumeFrom"
}
