package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The places of the resources in a row of room. Extended resources follow.
const (
	cpu = iota
	memory
	storage
	gpus
	pods
	extended
)

// layout is the order of the resources in a row. It has the extended resources that a waiting job asks for and some node offers;
// the amounts of others do not matter.
type layout struct {
	names []corev1.ResourceName
	width int
	// order of the resources in messages: what is scarce comes first.
	order []int
}

func layoutOf(pending []Job, nodes []Node) layout {
	// Whether a job asks for a name that is offered. What no node offers makes no row longer: jobs may ask for anything.
	offered := map[corev1.ResourceName]bool{}
	for i := range nodes {
		for name, amount := range nodes[i].Allocatable.Extended {
			if amount > 0 {
				offered[name] = false
			}
		}
	}
	for i := range pending {
		for g := range pending[i].Groups {
			for name := range pending[i].Groups[g].Requests.Extended {
				if _, ok := offered[name]; ok {
					offered[name] = true
				}
			}
		}
	}
	maps.DeleteFunc(offered, func(_ corev1.ResourceName, asked bool) bool { return !asked })
	l := layout{names: slices.Sorted(maps.Keys(offered)), width: extended + len(offered), order: []int{gpus}}
	for at := extended; at < l.width; at++ {
		l.order = append(l.order, at)
	}
	l.order = append(l.order, cpu, memory, storage, pods)
	return l
}

// first resource of a kind, in the order of messages; -1 when there is none.
func (l *layout) first(is func(at int) bool) int {
	if i := slices.IndexFunc(l.order, is); i >= 0 {
		return l.order[i]
	}
	return -1
}

// missing is the first by name of the extended resources in a request that no node offers; empty when there is none.
func (l *layout) missing(r *Resources) corev1.ResourceName {
	var first corev1.ResourceName
	for name, amount := range r.Extended {
		if amount <= 0 || (first != "" && name >= first) {
			continue
		}
		if _, ok := slices.BinarySearch(l.names, name); !ok {
			first = name
		}
	}
	return first
}

// add puts amounts on a row, or takes them, with sign -1.
func (l *layout) add(row []int64, r *Resources, sign int64) {
	row[cpu] += sign * r.MilliCPU
	row[memory] += sign * r.Memory
	row[storage] += sign * r.EphemeralStorage
	row[gpus] += sign * r.GPUs
	row[pods] += sign * r.Pods
	if len(r.Extended) > 0 {
		for i, name := range l.names {
			row[extended+i] += sign * r.Extended[name]
		}
	}
}

// member adds what one member of a group needs to a row: a member is a pod, even if its requests do not say so.
func (l *layout) member(row []int64, r *Resources) {
	l.add(row, r, 1)
	row[pods] = max(row[pods], 1)
}

// name of the resource at a place, as Kubernetes has it.
func (l *layout) name(at int) string {
	if at < extended {
		return names[at]
	}
	return string(l.names[at-extended])
}

var names = [extended]string{
	cpu: string(corev1.ResourceCPU), memory: string(corev1.ResourceMemory), storage: string(corev1.ResourceEphemeralStorage),
	gpus: gpuName, pods: string(corev1.ResourcePods),
}

const gpuName = "nvidia.com/gpu"

// room is what each node has left, a row for each node, in one piece of memory.
type room struct {
	width int
	all   []int64
}

func newRoom(nodes, width int) room { return room{width: width, all: make([]int64, nodes*width)} }

func (r room) of(node int32) []int64 {
	at := int(node) * r.width
	return r.all[at : at+r.width : at+r.width]
}

func (r room) clone() room { return room{width: r.width, all: slices.Clone(r.all)} }

// fits says whether a row has what a member needs. What it does not ask for may be overbooked.
func fits(row, request []int64) bool {
	for i, need := range request {
		if need > 0 && need > row[i] {
			return false
		}
	}
	return true
}

// count says how many members a row has room for, at most limit.
func count(row, request []int64, limit int) int {
	n := int64(limit)
	for i, need := range request {
		if need <= 0 {
			continue
		}
		if row[i] < need {
			return 0
		}
		if n > 1 {
			n = min(n, row[i]/need)
		}
	}
	return int(n)
}

// give changes a row by so many times what a member needs; fewer than none are taken away.
func give(row, request []int64, times int64) {
	for i, need := range request {
		row[i] += times * need
	}
}
