package queuestatus

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// figuresInterval is how far apart the figures in a status are written while they change all the time.
const figuresInterval = 3 * time.Second

// reporter writes statuses with figures that change all the time.
type reporter struct{ reporting.Pacer }

// report writes the status of an object when it changed: at once when that is urgent, and else at most every few seconds. It returns
// when to reconcile again; 0 for never.
func (r *reporter) report(
	ctx context.Context, c client.StatusClient, before, after client.Object, t reporting.Transition, urgent bool, now time.Time,
) (time.Duration, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(before)
	if wait := r.Wait(key, figuresInterval, now); wait > 0 && !urgent {
		return wait, nil
	}
	if err := reporting.Patch(ctx, c, before, after); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	r.Wrote(key, now)
	reporting.Tell(ctx, nil, before, t)
	return 0, nil
}
