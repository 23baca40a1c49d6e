package spotinstancevm

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/cloud/zonehistory"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// observed is all that a plan is made from.
type observed struct {
	now  time.Time
	vm   *spotv1alpha1.SpotInstanceVM
	memo vmMemo

	// forbidden is what a cluster administrator has not allowed: no instance is created then.
	forbidden problem
	// secret with the credentials; empty for the operator's own identity.
	secret string
	// kept says that the Secret has the finalizer of the SpotInstanceVM.
	kept bool
	// access is what keeps the operator from using the provider at all; listing what the last list of a zone met, and
	// shapeless why a machine type is not known.
	access, listing, shapeless problem
	// reachable says that there is a provider to send requests to: with problem, the one from before.
	reachable bool

	types     []machineType // that instances may have, at least one, in the order of the spec
	exhausted map[offer]exhausted
	// listed is when the last list of each zone that succeeded began.
	listed map[string]time.Time

	pods       []*corev1.Pod                // with the label of the SpotInstanceVM
	queued     []gang                       // that wait in a queue, the one that has waited longest first
	nodes      map[string]*corev1.Node      // of these pods and of the instances, by name
	podsOn     map[string][]*corev1.Pod     // of any namespace that have not ended, by node
	uses       map[string]*queueing.NodeUse // of the nodes of instances
	unsure     bool                         // what else is there is not known yet
	rechecked  map[string]bool              // nodes whose pods were read from the API server itself
	instances  []*instance                  // those in the status
	unrecorded []inventory.Found            // those that are ours and not in the status

	pace Pace
	// newName and newID make the end of a name, and a request ID.
	newName, newID func() string
}

// observe reads what exists, from the cache and from the inventory.
func (r *Reconciler) observe(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM) (observed, *inventory.Inventory, error) {
	o := observed{
		now: r.Clock.Now(), vm: vm, memo: r.memory.copyOf(vm.UID), exhausted: r.exhaustion.of(vm),
		listed: map[string]time.Time{}, nodes: map[string]*corev1.Node{}, podsOn: map[string][]*corev1.Pod{}, uses: map[string]*queueing.NodeUse{}, rechecked: map[string]bool{},
		newName: r.newName, newID: r.newID, pace: r.Pace,
	}
	for _, name := range vm.Spec.GCP.AllMachineTypes() {
		o.types = append(o.types, machineType{name: name, zones: zonehistory.Order(vm, name, o.now)})
	}
	account, err := r.observeAccess(ctx, &o)
	if err != nil {
		return o, nil, err
	}
	if o.reachable = account != nil; o.reachable {
		for n := range o.types {
			if err := r.observeShape(ctx, &o, &o.types[n], account.Provider()); err != nil {
				return o, nil, err
			}
		}
	}
	r.observeInstances(&o, account)
	// First the pods that are on nodes, then those that wait: one that is bound in between is seen neither to wait nor, for
	// now, on its node. The other way round it would be both, and an instance too many be created.
	for _, observe := range []func(context.Context, *observed) error{r.observeOwnNodes, r.observePods, r.observeQueued} {
		if err := observe(ctx, &o); err != nil {
			return o, nil, err
		}
	}
	r.observeUses(&o)
	for n, i := range o.instances {
		o.instances[n] = o.attach(i)
	}
	return o, account, nil
}

func (r *Reconciler) observeAccess(ctx context.Context, o *observed) (*inventory.Inventory, error) {
	key := client.ObjectKeyFromObject(o.vm)
	var jobs spotv1alpha1.SpotInstanceJobList
	if o.vm.Spec.GCP.CredentialsSecretRef == nil {
		if err := r.List(ctx, &jobs, client.InNamespace(o.vm.Namespace), client.MatchingFields{indexVM: o.vm.Name}); err != nil {
			return nil, fmt.Errorf("list the SpotInstanceJobs: %w", err)
		}
	}
	account := inventory.Account{Project: o.vm.Spec.GCP.Project}
	o.secret, o.access = secretOf(o.vm, jobs.Items)
	mayAsk, err := r.observeAllowance(ctx, o)
	switch {
	case err != nil:
		return nil, err
	case !mayAsk && !o.mayHaveInstances():
		r.inventories.Forget(key)
		return nil, nil
	case !mayAsk:
		return r.inventories.Followed(key), nil
	}
	if o.secret != "" {
		secret, err := r.credentials(ctx, types.NamespacedName{Namespace: o.vm.Namespace, Name: o.secret})
		if err != nil {
			return nil, err
		}
		account.Credentials, o.access = secret.content, secret.problem
		o.kept = slices.Contains(secret.finalizers, finalizerOf(o.vm.Name))
		if o.access.exists() && len(account.Credentials) == 0 && o.mayHaveInstances() {
			o.access.message += ", or delete the instances in project " + account.Project + " by hand and then remove the finalizer " + spotv1alpha1.FinalizerInstances
			if kept := o.vm.Annotations[spotv1alpha1.AnnotationCredentialsSecret]; kept != "" {
				o.access.message += ", and " + finalizerOf(o.vm.Name) + " of Secret " + kept + " where the operator does not"
			}
		}
	}
	if !o.access.exists() || len(account.Credentials) > 0 {
		followed, err := r.inventories.Follow(ctx, key, account, o.zonesWithInstances())
		if err == nil {
			return followed, nil
		}
		o.access = problem{
			reason: reasons.PermissionDenied, credentials: true,
			message: "the credentials cannot be used: " + short(err) + ": put the JSON key of a service account under " + credentialsKey,
		}
	}
	// The credentials from before do to look after the instances that there are.
	return r.inventories.Followed(key), nil
}

// observeShape finds what a machine type offers. It is asked for once, in the first zone that has it.
func (r *Reconciler) observeShape(ctx context.Context, o *observed, kind *machineType, provider cloud.Provider) error {
	known := o.memo.shapes[kind.name]
	if known.shape == nil && (known.tries == 0 || !o.now.Before(known.asked.Add(r.Pace.retryIn(known.tries)))) {
		known.asked = o.now
		known.tries++
		for _, zone := range kind.zones {
			var shape cloud.Shape
			if shape, known.err = provider.Shape(ctx, zone, kind.name); known.err == nil {
				known.shape = &shape
				break
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.memory.edit(o.vm.UID, func(m *vmMemo) { m.shapes[kind.name] = known })
	}
	kind.shape = known.shape
	if known.err != nil && !o.shapeless.exists() {
		o.shapeless = problemOf(known.err, "machine type "+kind.name)
	}
	return nil
}

// observePods reads the pods for which instances may be created, and the nodes that they are on.
func (r *Reconciler) observePods(ctx context.Context, o *observed) error {
	var err error
	o.pods, err = reconciling.List[*corev1.Pod](
		ctx, r.pods, &corev1.PodList{}, client.InNamespace(o.vm.Namespace), client.MatchingFields{indexVM: o.vm.Name})
	if err != nil {
		return err
	}
	for _, pod := range o.pods {
		if pod.Spec.NodeName == "" || o.nodes[pod.Spec.NodeName] != nil {
			continue
		}
		if err := r.observeNode(ctx, o, pod.Spec.NodeName); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) observeInstances(o *observed, account *inventory.Inventory) {
	key := client.ObjectKeyFromObject(o.vm)
	type place struct{ zone, name string }
	found := map[place]inventory.Found{}
	for _, one := range r.inventories.Of(key) {
		if one.Owner.UID == o.vm.UID && one.In.Project() == o.vm.Spec.GCP.Project {
			found[place{one.Zone, one.Name}] = one
		}
	}
	for _, entry := range o.vm.Status.ProvisionedInstances {
		i := &instance{ProvisionedInstance: entry}
		at := place{entry.Zone, entry.Name}
		if one, ok := found[at]; ok {
			i.seen, i.asOf = &one.Instance, one.AsOf
			delete(found, at)
		} else if account != nil {
			i.asOf = account.Zone(entry.Zone, key).Began
		}
		o.instances = append(o.instances, i)
	}
	for _, one := range found {
		o.unrecorded = append(o.unrecorded, one)
	}
	slices.SortFunc(o.unrecorded, func(a, b inventory.Found) int { return a.Created.Compare(b.Created) })
	if account == nil {
		return
	}
	for _, zone := range o.zonesWithInstances() {
		snapshot := account.Zone(zone, key)
		// A zone that the provider never knew has no instances: its list is not waited for.
		if !snapshot.Began.IsZero() || cloud.ClassOf(snapshot.Err) != cloud.Invalid {
			o.listed[zone] = snapshot.Began
		}
		if snapshot.Err != nil && !o.listing.exists() {
			o.listing = problemOf(snapshot.Err, "the list of instances in zone "+zone)
		}
	}
}

// zonesWithInstances are those in which instances may be created, and those in which there may be some.
func (o *observed) zonesWithInstances() []string {
	zones := zonehistory.Zones(o.vm)
	for _, entry := range o.vm.Status.ProvisionedInstances {
		if entry.Zone != "" && !slices.Contains(zones, entry.Zone) {
			zones = append(zones, entry.Zone)
		}
	}
	return zones
}

// observeOwnNodes reads the nodes of instances and the pods on them. Where an instance is about to be deleted for lack of
// work, its pods are read from the API server itself: the cache may be late.
func (r *Reconciler) observeOwnNodes(ctx context.Context, o *observed) error {
	var names []string
	for _, i := range o.instances {
		names = append(names, i.Name)
	}
	for _, one := range o.unrecorded {
		names = append(names, one.Name)
	}
	for _, name := range names {
		if err := r.observeNode(ctx, o, name); err != nil {
			return err
		}
		if node := o.nodes[name]; node != nil {
			if err := r.observePodsOn(ctx, o, node); err != nil {
				return err
			}
		}
	}
	return nil
}

// observeUses asks what else is on the nodes of instances: jobs that ask for no instances may be there, or are to be.
func (r *Reconciler) observeUses(o *observed) {
	var names []string
	for _, i := range o.instances {
		names = append(names, i.Name)
	}
	uses, known := r.Uses(names)
	for name, use := range uses {
		o.uses[name] = &use
	}
	o.unsure = !known
}

func (r *Reconciler) observeNode(ctx context.Context, o *observed, name string) error {
	node, err := reconciling.Get[corev1.Node](ctx, r, "", name)
	if node != nil {
		o.nodes[name] = node
	}
	return err
}

func (r *Reconciler) observePodsOn(ctx context.Context, o *observed, node *corev1.Node) error {
	pods, err := reconciling.List[*corev1.Pod](ctx, r.pods, &corev1.PodList{}, client.MatchingFields{indexNode: node.Name})
	if err != nil {
		return err
	}
	// Pods that have ended stay for as long as their Job, and those that are gone for as long as their finalizers: they are no reason to leave
	// the second look out.
	working := slices.DeleteFunc(pods, hasLeft)
	if len(working) == 0 && idleTaint(node) != nil {
		pods, err := reconciling.List[*corev1.Pod](ctx, r.Direct, &corev1.PodList{},
			client.HasLabels{spotv1alpha1.LabelSpotInstanceVM}, client.MatchingFields{"spec.nodeName": node.Name})
		if err != nil {
			return err
		}
		working, o.rechecked[node.Name] = slices.DeleteFunc(pods, hasLeft), true
	}
	o.podsOn[node.Name] = working
	return nil
}

// hasLeft says whether a pod does nothing on its node any more.
func hasLeft(pod *corev1.Pod) bool { return podend.IsEnded(pod) || podend.IsGone(pod) }

// attach completes an instance by what is remembered of it, its node and the pods there.
func (o *observed) attach(i *instance) *instance {
	if known := o.memo.instances[i.Name]; known != nil {
		i.memo = *known
	}
	if i.memo.lookedAt.After(i.asOf) {
		i.seen, i.asOf, i.looked = i.memo.looked, i.memo.lookedAt, true
	}
	if node := o.nodes[i.Name]; node == nil || !isNodeOf(node, o.vm, &i.ProvisionedInstance) {
		return i
	}
	i.node = o.nodes[i.Name]
	i.notice, i.noticed = nodenotice.FromNode(i.node, o.now)
	i.use = o.uses[i.Name]
	i.pods, i.rechecked = o.podsOn[i.Name], o.rechecked[i.Name]
	return i
}
