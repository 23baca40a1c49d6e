// Package workerdefaults gives workers the requests and limits of the installation that their job does not name, so that none takes all of
// its node.
package workerdefaults

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// names are the resources that have a default. A container that names no amount of them takes what it finds.
var names = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// Defaults are the requests and limits of a worker that names none. The zero value changes nothing.
type Defaults struct {
	Requests, Limits corev1.ResourceList

	invalid error // an environment variable
}

// AddFlags adds the flags that set the defaults, with environment variables as their defaults.
func (d *Defaults) AddFlags(flags *pflag.FlagSet) {
	for _, of := range []struct {
		list           *corev1.ResourceList
		flag, variable string
		what           string
	}{
		{&d.Requests, "default-worker-requests", "DEFAULT_WORKER_REQUESTS", "requests"},
		{&d.Limits, "default-worker-limits", "DEFAULT_WORKER_LIMITS", "limits"},
	} {
		value := (*amounts)(of.list)
		if err := value.Set(os.Getenv(of.variable)); err != nil {
			d.invalid = errors.Join(d.invalid, fmt.Errorf("environment variable %s: %w", of.variable, err))
		}
		flags.Var(value, of.flag, fmt.Sprintf("%s of workers of TrainingJobs and pods of AIJobs that name none, for example cpu=1,memory=4Gi; "+
			"empty: none (environment: %s)", of.what, of.variable))
	}
}

// Validate says what is wrong with environment variables, or what no pod can have.
func (d *Defaults) Validate() error {
	if d.invalid != nil {
		return d.invalid
	}
	for _, name := range slices.Sorted(maps.Keys(d.Requests)) {
		request := d.Requests[name]
		if limit, limited := d.Limits[name]; limited && request.Cmp(limit) > 0 {
			return fmt.Errorf("--default-worker-requests: %s is %s, above the limit of %s in --default-worker-limits: lower the request, or raise the limit",
				name, request.String(), limit.String())
		}
	}
	return nil
}

// For is what workers with these resources get beside them; nil for nothing. A limit of the job stands for its request, and a request that is
// above the default limit for the limit.
func (d *Defaults) For(spec *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if spec == nil {
		spec = &corev1.ResourceRequirements{}
	}
	var given corev1.ResourceRequirements
	for name, limit := range d.Limits {
		if _, named := spec.Limits[name]; named {
			continue
		}
		if request, named := spec.Requests[name]; named && request.Cmp(limit) > 0 {
			limit = request
		}
		add(&given.Limits, name, limit)
	}
	for name, request := range d.Requests {
		_, limited := spec.Limits[name]
		if _, requested := spec.Requests[name]; !limited && !requested {
			add(&given.Requests, name, request)
		}
	}
	if given.Requests == nil && given.Limits == nil {
		return nil
	}
	return &given
}

// With are resources together with what workers get beside them. Either may be nil. The result may share lists with both: do not change it.
func With(spec, given *corev1.ResourceRequirements) corev1.ResourceRequirements {
	all := ptr.Deref(spec, corev1.ResourceRequirements{})
	if given != nil {
		all.Requests, all.Limits = merged(all.Requests, given.Requests), merged(all.Limits, given.Limits)
	}
	return all
}

// merged are two lists that have no resource in common.
func merged(one, other corev1.ResourceList) corev1.ResourceList {
	if len(other) == 0 {
		return one
	}
	all := maps.Clone(other)
	maps.Copy(all, one)
	return all
}

func add(list *corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = amount.DeepCopy()
}

// amounts are a flag such as cpu=1,memory=4Gi.
type amounts corev1.ResourceList

// Type implements pflag.Value.
func (*amounts) Type() string { return "amounts" }

// String implements pflag.Value.
func (a *amounts) String() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(*a)) {
		amount := (*a)[name]
		list = append(list, string(name)+"="+amount.String())
	}
	return strings.Join(list, ",")
}

// Set implements pflag.Value.
func (a *amounts) Set(text string) error {
	list := amounts{}
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, amount, _ := strings.Cut(strings.TrimSpace(item), "=")
		if !slices.Contains(names, corev1.ResourceName(name)) {
			return fmt.Errorf("%q names none of cpu, memory and ephemeral-storage: write for example cpu=1,memory=4Gi", item)
		}
		quantity, err := resource.ParseQuantity(amount)
		if err != nil || quantity.Sign() <= 0 {
			return fmt.Errorf("%q has no amount above 0: write for example cpu=1,memory=4Gi", item)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	*a = list
	return nil
}
