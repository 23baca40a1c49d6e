package trainingjob

import (
	"k8s.io/apimachinery/pkg/api/meta"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// observeWaits counts how long a job waited to be admitted and to run, each the first time that it comes to it.
func (r *Reconciler) observeWaits(job *mlv1.TrainingJob, after *mlv1.TrainingJobStatus) {
	before, created := &job.Status, job.CreationTimestamp.Time
	if !meta.IsStatusConditionTrue(before.Conditions, mlv1.ConditionAdmitted) && before.StartTime == nil {
		if admitted := meta.FindStatusCondition(after.Conditions, mlv1.ConditionAdmitted); admitted != nil && admitted.Status == "True" {
			r.Metrics.Admitted(job.Namespace, admitted.LastTransitionTime.Sub(created))
		}
	}
	if before.StartTime == nil && after.StartTime != nil {
		r.Metrics.Running(job.Namespace, after.StartTime.Sub(created))
	}
}
