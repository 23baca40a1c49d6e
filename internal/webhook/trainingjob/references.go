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
)

// reference is an object that a job names.
type reference struct {
	// field of the TrainingJob that names it.
	field string
	kind  schema.GroupVersionKind
	// namespace is empty for objects of the cluster.
	namespace string
	name      string
	// key of a ConfigMap that is asked for; empty for any other kind.
	key string
	// until says what happens as long as the object is missing.
	until string
}

func coreKind(kind string) schema.GroupVersionKind {
	return corev1.SchemeGroupVersion.WithKind(kind)
}

var (
	kindPriorityClass  = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}
	kindStorageClass   = schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}
	kindSpotInstanceVM = schema.GroupVersionKind{Group: "training.training.dcnlab.com", Version: "v1alpha1", Kind: "SpotInstanceVM"}
)

// referencesOf are what the API server is to be asked about. Secrets are not among them: that one exists can only be seen with the
// permission to read it, and the operator has none to read its users' Secrets.
func referencesOf(job *mlv1.TrainingJob, children []client.Object) []reference {
	made := map[string]bool{}
	for _, child := range children {
		switch c := child.(type) {
		case *corev1.PersistentVolumeClaim:
			made["claim "+c.Name] = true
		case *corev1.ServiceAccount:
			made["account "+c.Name] = true
		}
	}
	var list []reference
	add := func(r reference) {
		r.namespace = job.Namespace
		if r.kind == kindPriorityClass {
			r.namespace = ""
		}
		if !slices.Contains(list, r) {
			list = append(list, r)
		}
	}
	pod := among[*batchv1.Job](children).Spec.Template.Spec
	if name := pod.ServiceAccountName; !made["account "+name] {
		add(reference{field: "spec.serviceAccountName", kind: coreKind("ServiceAccount"), name: name,
			until: "the API server refuses the workers' pods"})
	}
	for _, volume := range pod.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil && !made["claim "+source.ClaimName] {
			add(reference{field: claimField(job, source.ClaimName), kind: coreKind("PersistentVolumeClaim"), name: source.ClaimName,
				until: "the job waits"})
		}
	}
	for n, variable := range job.Spec.Env {
		if variable.ValueFrom == nil || variable.ValueFrom.ConfigMapKeyRef == nil {
			continue
		}
		if from := variable.ValueFrom.ConfigMapKeyRef; !ptr.Deref(from.Optional, false) {
			add(reference{field: fmt.Sprintf("spec.env[%d].valueFrom.configMapKeyRef", n), kind: coreKind("ConfigMap"),
				name: from.Name, key: from.Key, until: "the workers cannot start"})
		}
	}
	if s := job.Spec.Scheduling; s != nil {
		if s.Priority != "" {
			add(reference{field: "spec.scheduling.priority", kind: kindPriorityClass, name: s.Priority,
				until: "the API server refuses the workers' pods"})
		}
		if s.Spot != nil {
			add(reference{field: "spec.scheduling.spot.name", kind: kindSpotInstanceVM, name: s.Spot.Name,
				until: "no spot instance is provisioned"})
		}
	}
	return list
}

// claimField is the field that names a claim.
func claimField(job *mlv1.TrainingJob, name string) string {
	if c := job.Spec.Checkpoint; c != nil && c.Storage.ClaimName == name {
		return "spec.checkpoint.storage.claimName"
	}
	return "spec.checkpoint.resumeFrom"
}
