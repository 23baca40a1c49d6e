package operatorcondition

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Gate keeps a replica from being ready until OLM has been told when the operator must not be upgraded: OLM takes a
// version whose Deployment is ready for installed, and goes on to the next one as soon as nothing speaks against it. The
// gate does not wait for leadership, since a rolling update gives that up only when the new replica is ready.
type Gate struct {
	keeper *Keeper
	assess func(context.Context) (Verdict, error)
	retry  time.Duration
	// closed is why the replica is not ready; nil when it is.
	closed atomic.Pointer[error]
}

// NewGate returns a gate that looks at the cluster with assess until that succeeds, and once more after it has told OLM to
// wait. It waits the given time after a failure.
func NewGate(keeper *Keeper, assess func(context.Context) (Verdict, error), retry time.Duration) *Gate {
	gate := &Gate{keeper: keeper, assess: assess, retry: retry}
	reason := errors.New("has not looked yet whether the operator may be upgraded")
	gate.closed.Store(&reason)
	return gate
}

// NeedLeaderElection makes it a runnable of every replica.
func (g *Gate) NeedLeaderElection() bool { return false }

// Check is the readiness check.
func (g *Gate) Check(*http.Request) error {
	if reason := g.closed.Load(); reason != nil {
		return *reason
	}
	return nil
}

// Start returns when the replica may be ready.
func (g *Gate) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("operator-condition")
	_ = wait.PollUntilContextCancel(ctx, g.retry, true, func(ctx context.Context) (open bool, _ error) {
		err := g.pass(ctx)
		if err == nil {
			g.closed.Store(nil)
			return true, nil
		}
		g.closed.Store(&err)
		if ctx.Err() == nil {
			log.Error(err, "Not ready until OLM knows whether the operator may be upgraded, will try again")
		}
		return false, nil
	})
	return nil
}

func (g *Gate) pass(ctx context.Context) error {
	verdict, err := g.assess(ctx)
	if err != nil {
		return fmt.Errorf("find out whether the operator may be upgraded: %w", err)
	}
	if verdict.Upgradeable { // the leader writes that
		return nil
	}
	if err := g.keeper.Hold(ctx, verdict); err != nil {
		return err
	}
	// The leader may have finished, and said so, just before this replica wrote the opposite.
	if verdict, err = g.assess(ctx); err != nil {
		return fmt.Errorf("find out whether the operator may be upgraded: %w", err)
	}
	if verdict.Upgradeable {
		return g.keeper.Hold(ctx, verdict)
	}
	return nil
}
