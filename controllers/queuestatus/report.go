package queuestatus

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// figuresInterval is how far apart the figures in a status are written while they change all the time.
const figuresInterval = 3 * time.Second

// report writes the status of an object when it changed: at once when that is more than figures and words, and else at most every few
// seconds. It returns when to reconcile again.
func report(
	ctx context.Context, c client.StatusClient, pacer *reporting.Pacer, before, after client.Object, t reporting.Transition, now time.Time,
) (time.Duration, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return 0, nil
	}
	urgent := t.From != t.To || !slices.EqualFunc(t.Before, t.After, func(was, is metav1.Condition) bool {
		return was.Status == is.Status && was.Reason == is.Reason && was.ObservedGeneration == is.ObservedGeneration
	})
	key := client.ObjectKeyFromObject(before)
	if wait := pacer.Wait(key, figuresInterval, now); wait > 0 && !urgent {
		return wait, nil
	}
	if err := reporting.Patch(ctx, c, before, after); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	pacer.Wrote(key, now)
	reporting.Tell(ctx, nil, before, t)
	return 0, nil
}
