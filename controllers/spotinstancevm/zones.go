package spotinstancevm

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// offer is what a zone may have to give or not.
type offer struct {
	zone  string
	model spotv1alpha1.ProvisioningModel
	// machineType of the instance.
	machineType string
}

// offerKey tells offers of different kinds of instances apart.
type offerKey struct {
	offer

	project, gpu string
}

// exhausted is an offer that the provider last refused.
type exhausted struct {
	until    time.Time
	failures int
	err      error
}

// firstRest and longestRest bound how long a zone is left alone after it had no instance to give: it doubles with each
// refusal in a row.
const (
	firstRest   = time.Minute
	longestRest = 15 * time.Minute
)

// exhaustion remembers which zones have no instances to give, for all SpotInstanceVMs together.
type exhaustion struct {
	mu  sync.Mutex
	all map[offerKey]exhausted
}

func keyOf(vm *spotv1alpha1.SpotInstanceVM, o offer) offerKey {
	key := offerKey{offer: o, project: vm.Spec.GCP.Project}
	if vm.Spec.GPU != nil {
		key.gpu = vm.Spec.GPU.Type
	}
	return key
}

// refused notes that the zone had none to give.
func (e *exhaustion) refused(key offerKey, now time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[offerKey]exhausted{}
	}
	is := e.all[key]
	if now.Before(is.until) { // several were asked for at the same time: that is one refusal
		is.err = err
		e.all[key] = is
		return
	}
	if now.Sub(is.until) > longestRest {
		is.failures = 0
	}
	is.until, is.err = now.Add(reconciling.Doubled(firstRest, longestRest, is.failures)), err
	is.failures++
	e.all[key] = is
}

// granted notes that the zone gave one.
func (e *exhaustion) granted(key offerKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, key)
}

// of returns what is known of the offers of a SpotInstanceVM.
func (e *exhaustion) of(vm *spotv1alpha1.SpotInstanceVM) map[offer]exhausted {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := map[offer]exhausted{}
	for key, is := range e.all {
		if key == keyOf(vm, key.offer) {
			known[key.offer] = is
		}
	}
	return known
}

// choice of where and how to ask for an instance.
type choice struct {
	offer

	// none says that every zone was refused lately; until is when the first may be asked again, and err the refusal
	// that explains it best.
	none  bool
	until time.Time
	err   error
}

// choose the first zone that was not refused lately; at full price only when no zone has a spot instance, and the user
// allows it.
func choose(vm *spotv1alpha1.SpotInstanceVM, kind machineType, known map[offer]exhausted, now time.Time) choice {
	models := []spotv1alpha1.ProvisioningModel{cmp.Or(vm.Spec.ProvisioningModel, spotv1alpha1.ProvisioningSpot)}
	if ptr.Deref(vm.Spec.AllowStandardFallback, false) && models[0] == spotv1alpha1.ProvisioningSpot {
		models = append(models, spotv1alpha1.ProvisioningStandard)
	}
	best := choice{none: true}
	for _, model := range models {
		for _, zone := range kind.zones {
			o := offer{zone, model, kind.name}
			is, refused := known[o]
			if !refused || !now.Before(is.until) {
				return choice{offer: o}
			}
			if best.until.IsZero() || is.until.Before(best.until) {
				best.until = is.until
			}
			// Of a quota and a stockout the user can change the first.
			if best.err == nil || cloud.ClassOf(is.err) == cloud.Quota {
				best.err = is.err
			}
		}
	}
	return best
}
