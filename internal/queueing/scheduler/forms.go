package scheduler

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// shape is what the members of groups with equal needs have in common; what is worked out for one holds for all.
type shape struct {
	class   *class
	request []int64
	// uses counts how often a node was looked for; a ranking is made once that pays.
	uses    int
	ranking *ranking
	// tooMany is the least number of members that did not fit at once in the cycle, 0 while there is none.
	tooMany int
}

// part is a number of members of a shape. From is the first of them in the job's own order, at in the order of a form's parts.
type part struct {
	shape           *shape
	count, from, at int
}

// form is what jobs with equal needs have in common.
type form struct {
	// parts are in the order in which they are placed: those that the fewest nodes match first, then the largest, since what
	// is left suits the others.
	parts []part
	// members of all parts.
	members int
	// topology and cluster of the jobs.
	topology string
	cluster  *cluster
	// need that counts for limits.
	need amounts
	// full says that there was no room for it, which within a cycle stays so. SoonFull is the number of victims when there
	// was none either in what is to be free soon, -1 while that is not known.
	full     bool
	soonFull int
	// missing is an extended resource that it needs and no node offers; empty when there is none.
	missing corev1.ResourceName
	// hopeless says that even empty nodes have no room for it, once it is known.
	hopeless, known bool
	// fitsAlone says that it would fit but for what is kept for others, once that is known at the end of the cycle.
	fitsAlone, knownAlone bool
	// vain are the priorities up to which preemption frees no sufficient room.
	vain *int32
	// before says that a job of the form waits for room before others.
	before bool
	// messages of jobs that wait for the same.
	messages map[messageKey]string
}

// forms are the shapes and forms of a cycle by their contents.
type forms struct {
	layout    layout
	nodes     *nodes
	classes   map[string]*class
	shapes    map[string]*shape
	forms     map[string]*form
	clusters  map[string]*cluster
	required  map[*corev1.NodeSelector]string
	key, part []byte
}

func newForms(l layout, n *nodes, clusters map[string]*cluster) *forms {
	return &forms{layout: l, nodes: n, clusters: clusters, classes: map[string]*class{}, shapes: map[string]*shape{},
		forms: map[string]*form{}, required: map[*corev1.NodeSelector]string{}}
}

// of a job. Its cluster exists.
func (f *forms) of(job *Job) *form {
	key := appendText(f.key[:0], job.Cluster)
	key = appendText(key, job.Topology)
	for i := range job.Groups {
		group := &job.Groups[i]
		key = binary.AppendVarint(key, int64(group.Count))
		key = f.appendShape(key, group)
	}
	f.key = key
	if known, ok := f.forms[string(key)]; ok {
		return known
	}
	made := &form{topology: job.Topology, cluster: f.clusters[job.Cluster], need: needOf(job), soonFull: -1}
	for i := range job.Groups {
		group := &job.Groups[i]
		if group.Count > 0 {
			made.parts = append(made.parts, part{shape: f.shape(job.Cluster, group), count: group.Count, from: made.members})
			made.members += group.Count
			made.missing = cmp.Or(made.missing, f.layout.missing(&group.Requests))
		}
	}
	slices.SortStableFunc(made.parts, func(a, b part) int {
		x, y := a.shape.request, b.shape.request
		return cmp.Or(cmp.Compare(len(a.shape.class.nodes), len(b.shape.class.nodes)),
			cmp.Compare(y[gpus], x[gpus]), slices.Compare(y[extended:], x[extended:]), slices.Compare(y[:gpus], x[:gpus]))
	})
	for at, i := 0, 0; i < len(made.parts); i++ {
		made.parts[i].at = at
		at += made.parts[i].count
	}
	f.forms[string(key)] = made
	return made
}

func (f *forms) shape(clusterName string, group *Group) *shape {
	f.part = f.appendShape(appendText(f.part[:0], clusterName), group)
	if known, ok := f.shapes[string(f.part)]; ok {
		return known
	}
	key := string(f.part)
	made := &shape{request: make([]int64, f.layout.width)}
	f.layout.member(made.request, &group.Requests)
	f.part = f.appendClass(appendText(f.part[:0], clusterName), group)
	known, ok := f.classes[string(f.part)]
	if !ok {
		known = f.nodes.matching(f.clusters[clusterName], group)
		f.classes[string(f.part)] = known
	}
	made.class = known
	f.shapes[key] = made
	return made
}

func (f *forms) appendShape(key []byte, group *Group) []byte {
	r := &group.Requests
	for _, amount := range [...]int64{r.MilliCPU, r.Memory, r.EphemeralStorage, r.GPUs, r.Pods} {
		key = binary.AppendVarint(key, amount)
	}
	if len(r.Extended) == 0 {
		return f.appendClass(append(key, 0), group)
	}
	key = append(key, 1)
	for _, name := range f.layout.names {
		key = binary.AppendVarint(key, r.Extended[name])
	}
	key = appendText(key, string(f.layout.missing(r)))
	return f.appendClass(key, group)
}

func (f *forms) appendClass(key []byte, group *Group) []byte {
	key = binary.AppendVarint(key, int64(len(group.NodeSelector)))
	if len(group.NodeSelector) > 0 {
		for _, name := range slices.Sorted(maps.Keys(group.NodeSelector)) {
			key = appendText(appendText(key, name), group.NodeSelector[name])
		}
	}
	key = binary.AppendVarint(key, int64(len(group.Tolerations)))
	for i := range group.Tolerations {
		t := &group.Tolerations[i]
		key = appendText(appendText(appendText(appendText(key, t.Key), string(t.Operator)), t.Value), string(t.Effect))
	}
	key = binary.AppendVarint(key, int64(len(group.Required)))
	for _, selector := range group.Required {
		text, ok := f.required[selector]
		if !ok {
			text = selector.String()
			f.required[selector] = text
		}
		key = appendText(key, text)
	}
	return key
}

// appendText appends a text so that where it ends cannot be mistaken.
func appendText(key []byte, text string) []byte {
	return append(append(strconv.AppendInt(key, int64(len(text)), 10), ':'), text...)
}
