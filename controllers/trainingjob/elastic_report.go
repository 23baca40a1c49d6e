package trainingjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// tellElastic tells of workers that came and went while the training went on.
func tellElastic(before, after *mlv1.TrainingJobStatus, event func(kind, reason, action, note string)) {
	if after.State != mlv1.StateRunning {
		return
	}
	resized := before.Workers != nil && after.Workers != nil && before.Workers.Total != after.Workers.Total
	went := before.State == mlv1.StateRunning
	all := ""
	if after.Workers != nil {
		all = fmt.Sprintf("all %d workers run", after.Workers.Total)
	}
	switch {
	case resized && after.Reason == mlv1.ReasonRescaling:
		event(corev1.EventTypeNormal, mlv1.ReasonRescaling, "Rescale", fmt.Sprintf(
			"from %d to %d workers, without a restart", before.Workers.Total, after.Workers.Total))
	case resized && went && after.Reason == mlv1.ReasonWorkersRunning:
		event(corev1.EventTypeNormal, mlv1.ReasonRescaled, "Rescale", fmt.Sprintf(
			"from %d to %d workers, without a restart; %s", before.Workers.Total, after.Workers.Total, all))
	case before.Reason == mlv1.ReasonRescaling && after.Reason == mlv1.ReasonWorkersRunning:
		event(corev1.EventTypeNormal, mlv1.ReasonRescaled, "Rescale", all)
	case before.Reason == mlv1.ReasonWorkerLost && after.Reason == mlv1.ReasonWorkersRunning:
		event(corev1.EventTypeNormal, "WorkerRejoined", "Run", all+" again")
	}
	if after.Reason == mlv1.ReasonWorkerLost && (before.Reason != mlv1.ReasonWorkerLost || before.FailureReason != after.FailureReason) {
		event(corev1.EventTypeWarning, mlv1.ReasonWorkerLost, "Run", waitingMessage(after))
	}
}
