package queueing

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// Refusal is a Decider that admits no job: each waits for the same.
type Refusal scheduler.Wait

// Decision implements Decider.
func (r Refusal) Decision(uid types.UID) (Decision, bool) {
	wait := scheduler.Wait(r)
	wait.UID = uid
	return Decision{Wait: &wait}, true
}

// Changes implements Decider. There are none.
func (Refusal) Changes(string) source.Source {
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}
