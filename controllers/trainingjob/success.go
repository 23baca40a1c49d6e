package trainingjob

import (
	"cmp"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
)

// judgeSuccess looks at the figures that were scraped: when they say that the success policy is met, the training is
// to be stopped. A worker of the contract ends by itself then; this is for programs that do not know the policy. What is
// decided stands in the condition Stopping, so that it is not forgotten when the operator stops.
func (p *planner) judgeSuccess() {
	policy := p.job.Spec.SuccessPolicy
	if policy == nil || p.read.Figures == nil || p.workers == nil || p.status.State != mlv1.StateRunning {
		return
	}
	target := build.TargetOf(policy)
	watched := cmp.Or(target, &mlv1.TargetMetric{Name: build.Accuracy})
	value, reported := p.read.Figures.Metrics[watched.Name]
	if !reported {
		return
	}
	p.status.Best = best(p.status.Best, watched, value, p.read.Figures.Epoch)
	if stops := stoppingCondition(&p.status); stops != nil && stops.Reason != reasons.EarlyStopped {
		return
	}
	aim, side := ptr.Deref(watched.Value, 0), "at least"
	if watched.Mode == "min" {
		side = "at most"
	}
	switch message := stale(policy, p.status.Best, p.read.Figures.Epoch); {
	case target != nil && (value == aim || isBetter(watched, value, aim)):
		p.condition(reasons.ConditionStopping, true, reasons.TargetReached, fmt.Sprintf("%s %s is %s %s", watched.Name, number(value), side, number(aim)))
	case message != "":
		p.condition(reasons.ConditionStopping, true, reasons.EarlyStopped, message)
	default: // it improved while its end was awaited
		p.conclude(reasons.ConditionStopping, reasons.WorkersRunning, watched.Name+" improved again")
	}
}

// best is the best value of a metric after another was read. A training that was set back to before the epoch of the best
// one, having no newer checkpoint, has lost it.
func best(before *mlv1.BestStatus, of *mlv1.TargetMetric, value float64, epoch int32) *mlv1.BestStatus {
	if before != nil && before.Metric == of.Name && before.Epoch <= epoch && !isBetter(of, value, ptr.Deref(before.Value, 0)) {
		return before
	}
	return &mlv1.BestStatus{Metric: of.Name, Value: ptr.To(value), Epoch: epoch}
}

func isBetter(of *mlv1.TargetMetric, value, than float64) bool {
	if of.Mode == "min" {
		return value < than
	}
	return value > than
}

// stale says since when the training has not improved, if that is longer than the policy's patience; empty otherwise.
func stale(policy *mlv1.SuccessPolicy, best *mlv1.BestStatus, epoch int32) string {
	patience := ptr.Deref(policy.EarlyStoppingPatience, 0)
	if patience == 0 || best.Epoch == 0 || epoch-best.Epoch < patience {
		return ""
	}
	return fmt.Sprintf("%s has not improved for %d epochs; the best was %s in epoch %d",
		best.Metric, epoch-best.Epoch, number(ptr.Deref(best.Value, 0)), best.Epoch)
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

// stoppingCondition is why and since when the training is to end before its last epoch; nil when it is not.
func stoppingCondition(status *mlv1.TrainingJobStatus) *metav1.Condition {
	condition := meta.FindStatusCondition(status.Conditions, reasons.ConditionStopping)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	return condition
}
