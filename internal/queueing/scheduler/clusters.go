package scheduler

import (
	"cmp"
	"slices"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// cluster is a ComputeCluster in a cycle.
type cluster struct {
	*aiplatformv1alpha1.ComputeCluster
	// members are its nodes.
	members []int32
	ledger
}

func clustersOf(all []*aiplatformv1alpha1.ComputeCluster, n *nodes) map[string]*cluster {
	known := make(map[string]*cluster, len(all))
	for _, of := range all {
		made := &cluster{ComputeCluster: of, ledger: ledger{limit: unlimited}}
		if limits := of.Spec.Capacity; limits != nil {
			made.limit.set(jobs, limits.MaxJobs)
			made.limit.set(gpuSum, limits.MaxGPUs)
		}
		made.members = slices.DeleteFunc(slices.Clone(selected(n, of.Spec.NodeSelector)), func(at int32) bool {
			return !hasLabels(n.all[at].Labels, of.Spec.NodeSelector)
		})
		if limit := of.Spec.MaxNodes; limit != nil && len(made.members) > int(*limit) {
			slices.SortStableFunc(made.members, func(a, b int32) int {
				return cmp.Or(n.all[a].Created.Compare(n.all[b].Created), cmp.Compare(a, b))
			})
			made.members = made.members[:max(*limit, 0)]
			slices.Sort(made.members)
		}
		known[of.Name] = made
	}
	return known
}
