package trainingjob

import (
	"fmt"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// elasticEvents are the events of workers that joined and left while the training continued.
func elasticEvents(before, after *mlv1.TrainingJobStatus) (list []reporting.Event) {
	if after.State != mlv1.StateRunning {
		return nil
	}
	resized := before.Workers != nil && after.Workers != nil && before.Workers.Total != after.Workers.Total
	went := before.State == mlv1.StateRunning
	all := ""
	if after.Workers != nil {
		all = fmt.Sprintf("all %d workers run", after.Workers.Total)
	}
	switch {
	case resized && after.Reason == reasons.Rescaling:
		list = append(list, reporting.Normal(reasons.Rescaling, "Rescale",
			"from %d to %d workers, without a restart", before.Workers.Total, after.Workers.Total))
	case resized && went && after.Reason == reasons.WorkersRunning:
		list = append(list, reporting.Normal(reasons.Rescaled, "Rescale",
			"from %d to %d workers, without a restart; %s", before.Workers.Total, after.Workers.Total, all))
	case before.Reason == reasons.Rescaling && after.Reason == reasons.WorkersRunning:
		list = append(list, reporting.Normal(reasons.Rescaled, "Rescale", "%s", all))
	case before.Reason == reasons.WorkerLost && after.Reason == reasons.WorkersRunning:
		list = append(list, reporting.Normal(reasons.EventWorkerRejoined, "Run", "%s again", all))
	}
	if after.Reason == reasons.WorkerLost && (before.Reason != reasons.WorkerLost || before.FailureReason != after.FailureReason) {
		list = append(list, reporting.Warning(reasons.WorkerLost, "Run", "%s", waitingMessage(after)))
	}
	return list
}
