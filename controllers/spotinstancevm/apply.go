package spotinstancevm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// actsAtOnce bounds what is done at the same time for one SpotInstanceVM.
const actsAtOnce = 16

// step is an action and what is needed to do it.
type step struct {
	action

	vm          *spotv1alpha1.SpotInstanceVM
	entry       *spotv1alpha1.ProvisionedInstance // nil when the status has it no more
	machineType string
	provider    cloud.Provider
}

// apply does what the plan asks for. The status says so already. It tells whether something is known now that the plan
// should see at once.
func (r *Reconciler) apply(
	ctx context.Context, o observed, vm *spotv1alpha1.SpotInstanceVM, account *inventory.Inventory, d desired,
) (bool, error) {
	var group errgroup.Group
	group.SetLimit(actsAtOnce)
	var learned atomic.Bool
	for _, a := range d.actions {
		if a.kind == actRefresh {
			if account != nil {
				account.Refresh(client.ObjectKeyFromObject(vm), a.name)
			}
			continue
		}
		one := step{action: a, vm: vm, entry: entryOf(&d.status, a.name)}
		one.machineType = o.machineTypeOf(a.name, one.entry)
		if account != nil {
			one.provider = account.Provider()
		}
		group.Go(func() error {
			changed, err := r.do(ctx, one)
			if changed {
				learned.Store(true)
			}
			return err
		})
	}
	err := group.Wait()
	return learned.Load(), err
}

// machineTypeOf is the machine type of an instance: that of its entry unless the provider says another.
func (o *observed) machineTypeOf(name string, entry *spotv1alpha1.ProvisionedInstance) string {
	asked := o.vm.Spec.GCP.MachineType
	if entry != nil {
		asked = zonehistory.TypeOf(o.vm, entry)
	}
	for _, i := range o.instances {
		if i.Name == name && i.seen != nil {
			return cmp.Or(i.seen.MachineType, asked)
		}
	}
	return asked
}

func entryOf(status *spotv1alpha1.SpotInstanceVMStatus, name string) *spotv1alpha1.ProvisionedInstance {
	return reconciling.Find(status.ProvisionedInstances, func(entry *spotv1alpha1.ProvisionedInstance) bool { return entry.Name == name })
}

// acts are what an action does, whether it asks the provider, and whether the plan should see the result at once.
var acts = map[actionKind]struct {
	do           func(*Reconciler, context.Context, step) error
	asks, learns bool
}{
	actCreate:   {(*Reconciler).create, true, true},
	actDelete:   {(*Reconciler).remove, true, true},
	actAwait:    {(*Reconciler).await, true, true},
	actLook:     {(*Reconciler).look, true, true},
	actWhy:      {(*Reconciler).askWhy, true, true},
	actLogin:    {(*Reconciler).login, true, false},
	actRevoke:   {(*Reconciler).revoke, false, true},
	actLabel:    {(*Reconciler).labelNode, false, false},
	actMark:     {(*Reconciler).markNode, false, false},
	actTaint:    {(*Reconciler).taintNode, false, false},
	actUntaint:  {(*Reconciler).taintNode, false, false},
	actDropNode: {(*Reconciler).dropNode, false, false},
	actFindNode: {(*Reconciler).findNode, false, true},
}

// do one action. It tells whether the plan should see the result at once.
func (r *Reconciler) do(ctx context.Context, one step) (bool, error) {
	act := acts[one.kind]
	if one.entry == nil || act.asks && one.provider == nil { // the plan dropped it meanwhile, or there is no provider to ask
		return false, nil
	}
	return act.learns, act.do(r, ctx, one)
}

func (r *Reconciler) remember(one step, edit func(*memo)) {
	r.memory.edit(one.vm.UID, func(m *vmMemo) { edit(m.instance(one.name)) })
}

// asked is what a request asks the provider for.
type asked struct {
	what   string
	of     func(*memo) *request
	reason func(step) string
}

var (
	creation = asked{"create", func(m *memo) *request { return &m.create }, step.creationReason}
	deletion = asked{"delete", func(m *memo) *request { return &m.remove }, func(s step) string { return s.entry.Message }}
)

func (s step) creationReason() string {
	if s.entry.AssignedJob != "" {
		return "pods of " + s.entry.AssignedJob + " have no node"
	}
	return "pods have no node"
}

func (r *Reconciler) create(ctx context.Context, one step) error {
	metadata, mistake := r.Joining.Metadata(ctx, one.vm, one.name)
	var setup *child.Refusal
	if mistake != nil && !errors.As(mistake, &setup) {
		return mistake
	}
	r.memory.edit(one.vm.UID, func(m *vmMemo) { m.lastSent = r.Clock.Now() })
	return r.ask(ctx, one, creation, setup != nil, func() (cloud.Operation, error) {
		if mistake != nil {
			return cloud.Operation{}, mistake
		}
		return one.provider.Create(ctx, r.specOf(one.vm, one.entry, metadata))
	})
}

func (r *Reconciler) remove(ctx context.Context, one step) error {
	return r.ask(ctx, one, deletion, false, func() (cloud.Operation, error) {
		return deleteOwn(ctx, one.provider, one.entry.Zone, cmp.Or(one.entry.InstanceID, one.name), r.ownerOf(one.vm))
	})
}

// ask sends a request and notes the answer.
func (r *Reconciler) ask(ctx context.Context, one step, kind asked, final bool, send func() (cloud.Operation, error)) error {
	var before request
	began := r.Clock.Now()
	r.remember(one, func(m *memo) {
		q := kind.of(m)
		before = *q
		if !q.isSent() {
			q.sentAt = began
		}
		q.settledAt = time.Time{}
		q.tries++
	})
	operation, err := send()
	if err == nil && operation.Done {
		err = operation.Err
	}
	r.logCall(ctx, one, kind.what, kind.reason(one), before, began, err)
	r.note(one, kind, operation, err, final)
	return ctx.Err()
}

// note what the provider says of a request. final says that the same request need not be tried again.
func (r *Reconciler) note(one step, kind asked, operation cloud.Operation, err error, final bool) {
	now := r.Clock.Now()
	key := keyOf(one.vm, offer{one.entry.Zone, one.entry.ProvisioningModel, zonehistory.TypeOf(one.vm, one.entry)})
	switch {
	case kind.what != creation.what:
	case isCapacityRefusal(err):
		r.exhaustion.refused(key, now, err)
	case err == nil && operation.Done:
		r.exhaustion.granted(key)
	}
	r.remember(one, func(m *memo) { kind.of(m).answer(operation, err, final, now, r.Pace) })
}

// answer takes in what the provider answered to a request, at its sending or later. final says that the same request
// need not be tried again.
func (q *request) answer(operation cloud.Operation, err error, final bool, at time.Time, pace Pace) {
	q.operation, q.err = operation, err
	switch {
	case err == nil && !operation.Done:
		q.next = at.Add(pace.First)
		q.tries = 1
	case err != nil && isRetryable(err) && !final:
		q.operation = cloud.Operation{}
		q.next = at.Add(pace.retryIn(q.tries))
		if asked := (*cloud.Error)(nil); errors.As(err, &asked) && asked.RetryAfter > 0 {
			q.next = at.Add(asked.RetryAfter)
		}
	default:
		q.settledAt = at
		q.next = at.Add(pace.retryIn(q.tries)) // of a deletion: it is tried until it goes through
	}
}

// await reads how far the operation is that the instance waits for.
func (r *Reconciler) await(ctx context.Context, one step) error {
	kind, waits := deletion, request{}
	r.remember(one, func(m *memo) {
		if m.create.isSent() && !m.create.isSettled() && m.create.operation.Name != "" {
			kind = creation
		}
		waits = *kind.of(m)
	})
	operation, err := one.provider.Operation(ctx, waits.operation)
	now := r.Clock.Now()
	switch {
	case cloud.ClassOf(err) == cloud.NotFound: // the same request again returns its result
		r.remember(one, func(m *memo) { kind.of(m).operation, kind.of(m).next = cloud.Operation{}, now })
		return ctx.Err()
	case err != nil || !operation.Done:
		r.remember(one, func(m *memo) {
			q := kind.of(m)
			q.tries++
			q.err = err
			q.next = now.Add(min(r.Pace.retryIn(q.tries), longestPoll))
		})
		return ctx.Err()
	case operation.Err != nil:
		r.logCall(ctx, one, kind.what, kind.reason(one), request{}, waits.sentAt, operation.Err)
	}
	// Under the same request ID the provider would only repeat its answer to a creation.
	r.note(one, kind, operation, operation.Err, kind.what == creation.what)
	return ctx.Err()
}

// whySince is how far back the provider is asked for instances that it took back.
const whySince = 24 * time.Hour

// longestPoll bounds the time between two polls of an operation.
const longestPoll = 4 * time.Second

func (r *Reconciler) look(ctx context.Context, one step) error {
	at := r.Clock.Now()
	found, err := one.provider.Get(ctx, one.entry.Zone, one.name)
	switch {
	case err == nil:
		if owner, ok := inventory.OwnerOf(found); !ok || owner != r.ownerOf(one.vm) {
			found = nil
		}
	case cloud.ClassOf(err) == cloud.NotFound:
		found = nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return fmt.Errorf("read instance %s: %w", one.name, err)
	}
	r.remember(one, func(m *memo) { m.looked, m.lookedAt = found, at })
	return nil
}

// askWhy asks the provider whether it took a stopped instance back.
func (r *Reconciler) askWhy(ctx context.Context, one step) error {
	since := r.Clock.Now().Add(-whySince)
	if created := one.entry.CreationTime; created != nil && created.After(since) {
		since = created.Time
	}
	taken, err := one.provider.Preemptions(ctx, one.entry.Zone, since)
	now := r.Clock.Now()
	r.remember(one, func(m *memo) {
		m.preempted.tries++
		if err != nil {
			m.preempted.next = now.Add(r.Pace.retryIn(m.preempted.tries))
			return
		}
		m.preempted.settledAt = now
		m.takenBack = slices.ContainsFunc(taken, func(p cloud.Preemption) bool { return p.Instance == one.name })
	})
	return ctx.Err()
}

// login joins the instance over SSH, in the background.
func (r *Reconciler) login(_ context.Context, one step) error {
	busy := false
	r.remember(one, func(m *memo) {
		busy = m.joining.running
		m.joining.running = true
		m.joining.tries++
	})
	if busy {
		return nil
	}
	entry := *one.entry.DeepCopy()
	vm := one.vm.DeepCopy()
	go func() {
		ctx, cancel := context.WithTimeout(r.background, nodejoin.Timeout(&vm.Spec))
		defer cancel()
		err := r.Joining.Login(ctx, vm, entry, one.provider)
		now := r.Clock.Now()
		r.remember(one, func(m *memo) {
			m.joining.running, m.joining.err = false, err
			if err == nil {
				m.joining.settledAt = now
			}
			m.joining.next = now.Add(r.Pace.retryIn(m.joining.tries))
		})
		r.wake(client.ObjectKeyFromObject(vm))
	}()
	return nil
}

func (r *Reconciler) revoke(ctx context.Context, one step) error {
	if err := r.Joining.Revoke(ctx, one.vm, one.name); err != nil {
		return fmt.Errorf("revoke what instance %s joined with: %w", one.name, err)
	}
	r.remember(one, func(m *memo) { m.revoked = true })
	return nil
}

// markNode leaves a notice on the node of an instance that the provider stopped.
func (r *Reconciler) markNode(ctx context.Context, one step) error {
	node, err := r.nodeOf(ctx, one)
	if node == nil {
		return err
	}
	i := instance{ProvisionedInstance: *one.entry}
	return client.IgnoreNotFound(nodenotice.Mark(ctx, r.Client, one.name, noticeOf(&i, r.Clock.Now())))
}

func (r *Reconciler) labelNode(ctx context.Context, one step) error {
	return r.changeNode(ctx, one, func(node *corev1.Node) {
		for key, value := range labelsOfNode(one.vm) {
			metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
		}
		for key, value := range pricesOfNode(one.vm, one.entry) {
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == spotv1alpha1.TaintUnverified })
	})
}

// taintNode keeps pods off an idle node, or lets them onto it again.
func (r *Reconciler) taintNode(ctx context.Context, one step) error {
	return r.changeNode(ctx, one, func(node *corev1.Node) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == spotv1alpha1.TaintIdle })
		if one.kind == actTaint {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
				Key: spotv1alpha1.TaintIdle, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: r.Clock.Now()},
			})
		}
	})
}

// changeNode patches the node of an instance as it is in the cache. Taints are a list that is written as a whole: hence the lock.
func (r *Reconciler) changeNode(ctx context.Context, one step, edit func(*corev1.Node)) error {
	node, err := r.nodeOf(ctx, one)
	if node == nil {
		return err
	}
	next := node.DeepCopy()
	edit(next)
	err = r.Patch(ctx, next, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}), child.FieldOwner)
	return client.IgnoreNotFound(err)
}

// dropNode deletes the Node of an instance that is gone: with it go the pods that were on it.
func (r *Reconciler) dropNode(ctx context.Context, one step) error {
	node, err := r.nodeOf(ctx, one)
	if node == nil {
		return err
	}
	return child.Writer{Client: r.Client, Direct: r.Direct}.Delete(ctx, node)
}

// findNode asks the API server whether an instance that is gone has a Node. The cache of a manager that has just started may be older, and
// nothing would look for the Node once the instance is off the status.
func (r *Reconciler) findNode(ctx context.Context, one step) error {
	node, err := reconciling.Get[corev1.Node](ctx, r.Direct, "", one.name)
	switch {
	case err != nil:
		return err
	case node != nil && isNodeOf(node, one.vm, one.entry):
		return child.ErrLeftover // the cache will show it
	}
	r.remember(one, func(m *memo) { m.nodeless = true })
	return nil
}
