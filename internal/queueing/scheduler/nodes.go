package scheduler

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// nodes are those that something can be placed on, by name.
type nodes struct {
	all []*Node
	at  map[string]int32
	// taints is the number of each node's set of taints among taintSets.
	taints    []int32
	taintSets [][]corev1.Taint
	// labels of nodes that selectors have asked for: nodes by value.
	labels map[string]map[string][]int32
}

func nodesOf(all []Node) *nodes {
	n := &nodes{at: make(map[string]int32, len(all)), labels: map[string]map[string][]int32{}}
	n.all = make([]*Node, 0, len(all))
	for i := range all {
		if all[i].Ready {
			n.all = append(n.all, &all[i])
		}
	}
	slices.SortFunc(n.all, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	n.all = slices.CompactFunc(n.all, func(a, b *Node) bool { return a.Name == b.Name })
	n.taints = make([]int32, len(n.all))
	sets := map[string]int32{}
	var key []byte
	for i, node := range n.all {
		n.at[node.Name] = int32(i)
		key = key[:0]
		for t := range node.Taints {
			if keepsPodsAway(&node.Taints[t]) {
				key = appendText(appendText(appendText(key, node.Taints[t].Key), node.Taints[t].Value), string(node.Taints[t].Effect))
			}
		}
		set, ok := sets[string(key)]
		if !ok {
			set = int32(len(n.taintSets))
			sets[string(key)] = set
			n.taintSets = append(n.taintSets, slices.DeleteFunc(slices.Clone(node.Taints), func(t corev1.Taint) bool { return !keepsPodsAway(&t) }))
		}
		n.taints[i] = set
	}
	return n
}

func keepsPodsAway(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// byValue are the nodes that have a label, by its value.
func (n *nodes) byValue(label string) map[string][]int32 {
	if known, ok := n.labels[label]; ok {
		return known
	}
	values := map[string][]int32{}
	for i, node := range n.all {
		if value, ok := node.Labels[label]; ok {
			values[value] = append(values[value], int32(i))
		}
	}
	n.labels[label] = values
	return values
}

// class are the nodes that selectors, taints and affinity leave, whatever room they have.
type class struct {
	nodes []int32
	// has says of each node whether it is one of them.
	has []bool
	// reserved is the job for which room on such nodes is kept.
	reserved *waiting
	// domains are the nodes by the value of a topology label.
	domains map[string][]domain
	// refused are requests of one member that no node has room for in this cycle.
	refused [][]int64
	// largest and free are, for messages, what one node and all together have at the end of the cycle, and without any job.
	largest, free [2][]int64
}

// domain are the nodes of one value of a topology label.
type domain struct {
	value string
	nodes []int32
}

// matching makes the class of a group's members in a cluster, nil for none.
func (n *nodes) matching(in *cluster, group *Group) *class {
	candidates := selected(n, group.NodeSelector)
	if in != nil {
		candidates = within(candidates, in.members)
	}
	var required []*nodeaffinity.NodeSelector
	for _, one := range group.Required {
		selector, err := nodeaffinity.NewNodeSelector(one)
		if err != nil {
			return &class{has: make([]bool, len(n.all))}
		}
		required = append(required, selector)
	}
	tolerated := make([]bool, len(n.taintSets))
	for i, taints := range n.taintSets {
		_, refused := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Logger{}, taints, group.Tolerations, nil, false)
		tolerated[i] = !refused
	}
	made := &class{nodes: make([]int32, 0, len(candidates)), has: make([]bool, len(n.all))}
	var asNode corev1.Node
	for _, at := range candidates {
		if !tolerated[n.taints[at]] || !hasLabels(n.all[at].Labels, group.NodeSelector) {
			continue
		}
		asNode.ObjectMeta = metav1.ObjectMeta{Name: n.all[at].Name, Labels: n.all[at].Labels}
		if slices.ContainsFunc(required, func(selector *nodeaffinity.NodeSelector) bool { return !selector.Match(&asNode) }) {
			continue
		}
		made.nodes = append(made.nodes, at)
		made.has[at] = true
	}
	return made
}

// selected are the nodes with the label of a selector that the fewest have.
func selected[V ~string](n *nodes, selector map[string]V) []int32 {
	if len(selector) == 0 {
		every := make([]int32, len(n.all))
		for i := range every {
			every[i] = int32(i)
		}
		return every
	}
	var fewest []int32
	first := true
	for label, value := range selector {
		if have := n.byValue(label)[string(value)]; first || len(have) < len(fewest) {
			fewest, first = have, false
		}
	}
	return fewest
}

func hasLabels[V ~string](labels map[string]string, selector map[string]V) bool {
	for label, value := range selector {
		if have, ok := labels[label]; !ok || have != string(value) {
			return false
		}
	}
	return true
}

// within are those of sorted nodes that are among other sorted nodes.
func within(some, others []int32) []int32 {
	both := make([]int32, 0, min(len(some), len(others)))
	for i, j := 0, 0; i < len(some) && j < len(others); {
		switch cmp.Compare(some[i], others[j]) {
		case -1:
			i++
		case 1:
			j++
		default:
			both = append(both, some[i])
			i, j = i+1, j+1
		}
	}
	return both
}

// byTopology are the class' nodes by the value of a label; nodes without it are in none.
func (c *class) byTopology(n *nodes, label string) []domain {
	if known, ok := c.domains[label]; ok {
		return known
	}
	var all []domain
	for value, have := range n.byValue(label) {
		if in := within(have, c.nodes); len(in) > 0 {
			all = append(all, domain{value, in})
		}
	}
	slices.SortFunc(all, func(a, b domain) int { return strings.Compare(a.value, b.value) })
	if c.domains == nil {
		c.domains = map[string][]domain{}
	}
	c.domains[label] = all
	return all
}
