package scheduler

import (
	"cmp"
	"slices"
)

// cluster is a Cluster in a cycle.
type cluster struct {
	*Cluster
	// members are its nodes.
	members []int32
	ledger
}

func clustersOf(all []Cluster, n *nodes) map[string]*cluster {
	known := make(map[string]*cluster, len(all))
	for i := range all {
		made := &cluster{Cluster: &all[i], ledger: ledger{limit: unlimited}}
		if all[i].MaxJobs != nil {
			made.limit[jobs] = int64(*all[i].MaxJobs)
		}
		if all[i].MaxGPUs != nil {
			made.limit[gpuSum] = *all[i].MaxGPUs
		}
		candidates, rest := n.selected(all[i].NodeSelector)
		made.members = slices.DeleteFunc(slices.Clone(candidates), func(at int32) bool { return !hasLabels(n.all[at].Labels, rest) })
		if limit := all[i].MaxNodes; limit != nil && len(made.members) > *limit {
			slices.SortStableFunc(made.members, func(a, b int32) int {
				return cmp.Or(n.all[a].Created.Compare(n.all[b].Created), cmp.Compare(a, b))
			})
			made.members = made.members[:max(*limit, 0)]
			slices.Sort(made.members)
		}
		known[all[i].Name] = made
	}
	return known
}
