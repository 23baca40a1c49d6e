// Package operatorcondition tells the Operator Lifecycle Manager (OLM) whether the operator may be upgraded now.
//
// OLM makes an OperatorCondition for the ClusterServiceVersion that it installed, names it to the operator in the
// environment and lets the operator's ServiceAccount read and write it. While the condition Upgradeable in its spec is
// False, OLM does not replace that version by the next one.
package operatorcondition

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// NameVariable is the environment variable in which OLM names the OperatorCondition.
	NameVariable = "OPERATOR_CONDITION_NAME"
	// NamespaceVariable is the environment variable that names the namespace of the manager and of the OperatorCondition.
	NamespaceVariable = "POD_NAMESPACE"
)

// namespaceFile names the namespace of a pod that mounts the token of its ServiceAccount.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Verdict says whether the operator may be upgraded, and why.
type Verdict struct {
	// Upgradeable is the status of the condition.
	Upgradeable bool
	// Reason is one word in CamelCase.
	Reason string
	// Message is for people.
	Message string
}

// FromEnvironment returns the name of the OperatorCondition, or false when the operator was not installed by OLM. It is an
// error when there is a name but no namespace.
func FromEnvironment() (types.NamespacedName, bool, error) {
	name := os.Getenv(NameVariable)
	if name == "" {
		return types.NamespacedName{}, false, nil
	}
	namespace := os.Getenv(NamespaceVariable)
	if namespace == "" {
		content, err := os.ReadFile(namespaceFile)
		if err != nil {
			return types.NamespacedName{}, false, fmt.Errorf("%s names the OperatorCondition %s, but its namespace is not known: "+
				"set %s to the namespace of the manager: %w", NameVariable, name, NamespaceVariable, err)
		}
		namespace = strings.TrimSpace(string(content))
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true, nil
}

// Options of a keeper. All fields are required unless they have a default.
type Options struct {
	// Key names the OperatorCondition.
	Key types.NamespacedName
	// Client reads and patches it. It must not have a cache: OLM grants no list or watch.
	Client client.Client
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
	mu sync.Mutex
}

// NewKeeper returns a keeper.
func NewKeeper(options Options) *Keeper {
	options.Interval = cmp.Or(options.Interval, 10*time.Second)
	options.Retry = cmp.Or(options.Retry, 5*time.Second)
	options.Resync = cmp.Or(options.Resync, 5*time.Minute)
	return &Keeper{options: options}
}

// Hold writes a verdict at once.
func (k *Keeper) Hold(ctx context.Context, verdict Verdict) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.write(ctx, verdict)
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
		due := time.Until(written.Add(k.options.Interval))
		switch {
		case !known: // a value of Changed follows
		case onlyMessage && !written.IsZero() && due > 0:
			wait = due
		default:
			var err error
			if last, err = k.follow(ctx); err == nil {
				written = time.Now()
			} else if ctx.Err() == nil {
				log.Error(err, "Cannot tell OLM whether the operator may be upgraded, will try again")
				wait, last = k.options.Retry, Verdict{}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.options.Changed:
		case <-time.After(wait):
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
	return verdict, k.write(ctx, verdict)
}

// write has the condition as it should be. It does nothing in a cluster that does not serve OperatorConditions: nothing would read it there.
func (k *Keeper) write(ctx context.Context, verdict Verdict) error {
	wanted := metav1.Condition{Type: operatorsv2.Upgradeable, Status: metav1.ConditionFalse, Reason: verdict.Reason, Message: verdict.Message}
	if verdict.Upgradeable {
		wanted.Status = metav1.ConditionTrue
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := &operatorsv2.OperatorCondition{}
		if err := k.options.Client.Get(ctx, k.options.Key, object); err != nil {
			return err
		}
		before := object.DeepCopy()
		if !meta.SetStatusCondition(&object.Spec.Conditions, wanted) {
			return nil
		}
		return k.options.Client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err == nil || meta.IsNoMatchError(err) {
		return nil
	}
	return fmt.Errorf("write the condition %s of the OperatorCondition %s: %w", operatorsv2.Upgradeable, k.options.Key, err)
}
