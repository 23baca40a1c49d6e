package child

import (
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LabelNotInBackup on an object has Velero leave it out of backups (https://velero.io/docs/main/resource-filtering/).
const LabelNotInBackup = "velero.io/exclude-from-backup"

// outOfBackups is a child that is to be created, with a label that keeps it out of backups, and the pods of a Job too: a restored owner has it
// made again; brought back beside that, without an owner, it would run a second time. What has no owner, and claims, have data that are kept.
func outOfBackups(child client.Object) client.Object {
	if _, claim := child.(*corev1.PersistentVolumeClaim); claim || len(child.GetOwnerReferences()) == 0 {
		return child
	}
	marked := child.DeepCopyObject().(client.Object)
	marked.SetLabels(withoutBackup(marked.GetLabels()))
	if job, ok := marked.(*batchv1.Job); ok {
		job.Spec.Template.Labels = withoutBackup(job.Spec.Template.Labels)
	}
	return marked
}

func withoutBackup(labels map[string]string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelNotInBackup] = "true"
	return labels
}
