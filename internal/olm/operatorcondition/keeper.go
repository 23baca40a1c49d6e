package operatorcondition

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options of a keeper. All fields are required unless they have a default.
type Options struct {
	// Key names the OperatorCondition.
	Key types.NamespacedName
	// Client reads and patches it. It must not have a cache: OLM grants no list or watch.
	Client client.Client
	// Clock tells the time.
	Clock clock.Clock
	// Verdict returns what the condition should say, or false while that is not known. The keeper asks again after a
	// value from Changed.
	Verdict func() (Verdict, bool)
	// Changed has a value when the verdict may have changed.
	Changed <-chan struct{}
	// Interval is the least time between two writes that change the message only. Default 10 s.
	Interval time.Duration
	// Retry is the time after which a failed write is tried again. Default 5 s.
	Retry time.Duration
	// Resync is how often the condition is compared with the verdict again. Default 5 minutes.
	Resync time.Duration
}

// Keeper keeps the condition Upgradeable as the verdict has it. It is a runnable of the leader; Hold may be called by
// anyone.
type Keeper struct {
	options Options

	// mu is held from asking for the verdict until it is written, so that a verdict cannot overtake a newer one.
	mu        sync.Mutex
	condition condition
}

// NewKeeper returns a keeper.
func NewKeeper(options Options) *Keeper {
	options.Interval = cmp.Or(options.Interval, 10*time.Second)
	options.Retry = cmp.Or(options.Retry, 5*time.Second)
	options.Resync = cmp.Or(options.Resync, 5*time.Minute)
	return &Keeper{
		options:   options,
		condition: condition{key: options.Key, client: options.Client},
	}
}

// Hold writes a verdict at once.
func (k *Keeper) Hold(ctx context.Context, verdict Verdict) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.condition.set(ctx, verdict)
}

// Start keeps the condition until the context ends.
func (k *Keeper) Start(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("operator-condition")
	var last Verdict
	var written time.Time
	for {
		wait := k.options.Resync
		verdict, known := k.options.Verdict()
		onlyMessage := verdict.Upgradeable == last.Upgradeable && verdict != last
		due := written.Add(k.options.Interval).Sub(k.options.Clock.Now())
		switch {
		case !known: // a value of Changed follows
		case onlyMessage && !written.IsZero() && due > 0:
			wait = due
		default:
			var err error
			if last, err = k.follow(ctx); err == nil {
				written = k.options.Clock.Now()
			} else if ctx.Err() == nil {
				log.Error(err, "Cannot tell OLM whether the operator may be upgraded, will try again")
				wait, last = k.options.Retry, Verdict{}
			}
		}
		timer := k.options.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-k.options.Changed:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// follow writes the verdict of this moment, and returns it.
func (k *Keeper) follow(ctx context.Context) (Verdict, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	verdict, known := k.options.Verdict()
	if !known {
		return Verdict{}, nil
	}
	return verdict, k.condition.set(ctx, verdict)
}
