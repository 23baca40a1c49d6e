package trainingjob

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/training/cost"
)

// costLag is how far status.cost may be behind before it is worth a write of its own.
const costLag = 10 * time.Minute

// observeCost brings the times that the job's pods held their nodes since the cost was last written, with the prices of
// the nodes. A price that cannot be read holds up the cost alone, which is charged once it can, and not the training.
func (r *Reconciler) observeCost(ctx context.Context, o *observed) error {
	if c := o.job.Status.Cost; isFinished(&o.job.Status) && (c == nil || c.PerHour == "0") { // there is nothing more to charge
		r.ledger.Forget(client.ObjectKeyFromObject(o.job))
		return nil
	}
	requests := build.Requests(o.job, 1)
	usages := r.ledger.Usages(o.job, o.pods, o.now)
	for i, usage := range usages {
		price, known := r.prices.Of(ctx, r.Direct, usage.Node, o.now)
		if !known {
			o.priceUnread = true
			return nil // it is read again later
		}
		if price != nil {
			usages[i].PerHour, usages[i].Currency = price.Rate(requests), price.Currency
		}
	}
	o.usages = usages
	return nil
}

// chargeCost brings the cost into a status that is written anyway. When nothing else changed the old cost stays, unless
// it is too far behind or the last pod has ended.
func (o *observed) chargeCost(status *mlv1.TrainingJobStatus) {
	before := o.job.Status.Cost
	status.Cost = before
	if o.priceUnread {
		return
	}
	next := cost.Charge(before, o.usages, o.now)
	if next == nil || (equality.Semantic.DeepEqual(&o.job.Status, status) && !costDue(before, next, o)) {
		return
	}
	status.Cost = next
}

// costDue says whether a cost is worth a write of its own.
func costDue(before, next *mlv1.CostStatus, o *observed) bool {
	if before == nil || before.Time == nil {
		return slices.ContainsFunc(o.usages, func(usage cost.Usage) bool { return o.now.Sub(usage.Start) >= costLag })
	}
	if next.Total == before.Total && next.PerHour == before.PerHour && next.UnpricedWorkers == before.UnpricedWorkers {
		return false
	}
	return o.now.Sub(before.Time.Time) >= costLag || (next.PerHour == "0" && isFinished(&o.job.Status))
}
