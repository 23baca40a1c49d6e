// Package capacity works out how many instances pods need that find no room.
package capacity

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Resources of a pod, or of a node for pods.
type Resources struct {
	// MilliCPU is in milli-units of a core, Memory in bytes.
	MilliCPU, Memory int64
	// GPUs are whole ones.
	GPUs int64
}

// Minus is what is left of the resources.
func (r Resources) Minus(other Resources) Resources {
	return Resources{r.MilliCPU - other.MilliCPU, r.Memory - other.Memory, r.GPUs - other.GPUs}
}

// Fits says whether the resources are there in others.
func (r Resources) Fits(in Resources) bool {
	return r.MilliCPU <= in.MilliCPU && r.Memory <= in.Memory && r.GPUs <= in.GPUs
}

// Pod is a pod that needs room, or has it.
type Pod struct {
	// Name tells it from others.
	Name string
	// Job it belongs to, as kind/name.
	Job string
	// Needs is what it requests.
	Needs Resources
	// Refused says that the scheduler found no room for it on any node that there is, and Since since when it says so. A pod
	// that runs, on a node that will be gone, it has not been asked about.
	Refused bool
	Since   time.Time
	// Labels of the pod, and Apart which pods it cannot share a node with.
	Labels labels.Set
	Apart  []labels.Selector
}

// apart says whether two pods cannot be on one node.
func apart(a, b *Pod) bool {
	forbids := func(one, other *Pod) bool {
		return slices.ContainsFunc(one.Apart, func(s labels.Selector) bool { return s.Matches(other.Labels) })
	}
	return forbids(a, b) || forbids(b, a)
}

// Bin is a node that there is or will be.
type Bin struct {
	// Name of the node.
	Name string
	// Free is what it has for further pods.
	Free Resources
	// Pods that are on it.
	Pods []Pod
	// Tried is until when the scheduler could have chosen the node: a pod that it has refused since before does not fit there,
	// whatever Free says. Zero for a node that it does not know yet.
	Tried time.Time
}

// refuses says whether the scheduler did not choose the node for a pod although it could have.
func (b *Bin) refuses(pod *Pod) bool {
	return pod.Refused && !b.Tried.IsZero() && !pod.Since.After(b.Tried)
}

func (b *Bin) takes(pod *Pod) bool {
	return pod.Needs.Fits(b.Free) && !slices.ContainsFunc(b.Pods, func(other Pod) bool { return apart(pod, &other) })
}

func (b *Bin) put(pod *Pod) {
	b.Free = b.Free.Minus(pod.Needs)
	b.Pods = append(b.Pods, *pod)
}

// Packing is where pods go.
type Packing struct {
	// New are the pods of each node that is to be made.
	New [][]Pod
	// Bins are all nodes then, the new ones last, with the pods that they got.
	Bins []Bin
	// Used names the bins that got a pod.
	Used map[string]bool
	// TooLarge are pods that fit on no new node.
	TooLarge []Pod
	// Unexplained are pods that the scheduler refused although an empty node has the room for them: something else than
	// room is in their way, and another such node would not help.
	Unexplained []Pod
}

// Pack puts pods on nodes that there are or will be, and on as few new nodes of the shape as it finds, the largest pods
// first. It does not change its arguments.
func Pack(pods []Pod, bins []Bin, shape Resources) Packing {
	packing := Packing{Used: map[string]bool{}}
	sorted := slices.Clone(pods)
	slices.SortStableFunc(sorted, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(b.Needs.GPUs, a.Needs.GPUs), cmp.Compare(b.Needs.MilliCPU, a.Needs.MilliCPU),
			cmp.Compare(b.Needs.Memory, a.Needs.Memory), cmp.Compare(a.Name, b.Name))
	})
	known := make([]Bin, len(bins))
	for i, bin := range bins {
		known[i] = bin
		known[i].Pods = slices.Clone(bin.Pods)
	}
	var fresh []Bin
	for i := range sorted {
		pod := &sorted[i]
		if at := slices.IndexFunc(known, func(b Bin) bool { return !b.refuses(pod) && b.takes(pod) }); at >= 0 {
			known[at].put(pod)
			packing.Used[known[at].Name] = true
			continue
		}
		if slices.ContainsFunc(bins, func(b Bin) bool { return b.refuses(pod) && len(b.Pods) == 0 && b.takes(pod) }) {
			packing.Unexplained = append(packing.Unexplained, *pod)
			continue
		}
		if at := slices.IndexFunc(fresh, func(b Bin) bool { return b.takes(pod) }); at >= 0 {
			fresh[at].put(pod)
			continue
		}
		if !pod.Needs.Fits(shape) {
			packing.TooLarge = append(packing.TooLarge, *pod)
			continue
		}
		bin := Bin{Free: shape}
		bin.put(pod)
		fresh = append(fresh, bin)
	}
	for _, bin := range fresh {
		packing.New = append(packing.New, bin.Pods)
	}
	packing.Bins = slices.Concat(known, fresh)
	return packing
}
