package scheduler_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// snapshots draws small worlds in which much is in one another's way.
func snapshots(t *rapid.T) scheduler.Snapshot {
	s := scheduler.Snapshot{Now: noon}
	for i := range rapid.SampledFrom([]int{1, 2, 3, 4, 0}).Draw(t, "nodes") {
		n := node(fmt.Sprintf("n%d", i), rapid.Int64Range(1, 4).Draw(t, "gpus")).label("zone", rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone"))
		n.Allocatable.MilliCPU = rapid.Int64Range(3, 8).Draw(t, "cpu")
		n.Allocatable.Pods = rapid.Int64Range(2, 6).Draw(t, "pods")
		n.Requested.MilliCPU = rapid.Int64Range(0, 1).Draw(t, "requested")
		n.Created = noon.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Hour)
		if rapid.IntRange(0, 5).Draw(t, "tainted") == 5 {
			n = n.taint("t", "", corev1.TaintEffectNoSchedule)
		}
		n.Ready = rapid.IntRange(0, 9).Draw(t, "ready") < 9
		s.Nodes = append(s.Nodes, scheduler.Node(n))
	}
	limit := func(name string) *int32 {
		if n := rapid.Int32Range(-3, 8).Draw(t, name); n >= 0 {
			return &n
		}
		return nil
	}
	number := func(name string) *int32 {
		if n := rapid.Int32Range(-2, 5).Draw(t, name); n >= 0 {
			return &n
		}
		return nil
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "queues") {
		q := queue(fmt.Sprintf("q%d", i)).algorithm(rapid.SampledFrom([]aiplatformv1alpha1.QueueAlgorithm{"priority", "priority", "fifo", "fair-share"}).Draw(t, "algorithm"))
		if !rapid.Bool().Draw(t, "keeps") {
			q = q.preempts()
		}
		q = q.maxJobs(rapid.Int32Range(0, 6).Draw(t, "maxJobs"))
		if rapid.Bool().Draw(t, "quota") {
			q = q.quota(aiplatformv1alpha1.ResourceLimits{GPUs: limit("quota")})
			if cpu := limit("cpuQuota"); cpu != nil {
				q.Spec.Quotas.CPU = cpuOf(int64(*cpu)).CPU
			}
		}
		q = q.cohort(rapid.SampledFrom([]string{"", "c"}).Draw(t, "cohort"))
		q = q.borrowing(aiplatformv1alpha1.ResourceLimits{GPUs: limit("borrowing")})
		tenants := func(jobs, gpus string) *aiplatformv1alpha1.TenantLimits {
			return &aiplatformv1alpha1.TenantLimits{MaxConcurrency: number(jobs), ResourceLimits: aiplatformv1alpha1.ResourceLimits{GPUs: limit(gpus)}}
		}
		if rapid.IntRange(0, 2).Draw(t, "perUser") == 2 {
			q.Spec.UserLimits = tenants("userJobs", "userGPUs")
		}
		if rapid.IntRange(0, 2).Draw(t, "perNamespace") == 2 {
			q.Spec.NamespaceLimits = tenants("namespaceJobs", "namespaceGPUs")
		}
		if rapid.IntRange(0, 9).Draw(t, "suspended") == 9 {
			q = q.suspended()
		}
		s.Queues = append(s.Queues, q.build())
	}
	for i := range rapid.IntRange(0, 1).Draw(t, "clusters") {
		c := cluster(fmt.Sprintf("c%d", i), "zone", "a").limits(number("clusterJobs"), limit("clusterGPUs"), number("clusterNodes"))
		s.Clusters = append(s.Clusters, c.build())
	}
	// What runs was admitted by the scheduler, so that it is within all limits.
	for i := range rapid.IntRange(3, 16).Draw(t, "running") {
		s.Pending = append(s.Pending, drawJob(t, fmt.Sprintf("r%d", i), &s))
	}
	first := scheduler.Schedule(s)
	waiting := s.Pending
	s.Pending = nil
	for _, a := range first.Admitted {
		for _, j := range waiting {
			if j.UID == a.UID {
				j.Placement = a.Nodes
				j.AdmittedAt = j.QueuedAt.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "admitted")) * time.Second)
				j.Stopping = rapid.IntRange(0, 5).Draw(t, "stopping") == 5
				s.Running = append(s.Running, j)
			}
		}
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "pending") {
		s.Pending = append(s.Pending, drawJob(t, fmt.Sprintf("p%d", i), &s))
	}
	return s
}

func drawJob(t *rapid.T, name string, s *scheduler.Snapshot) scheduler.Job {
	j := job(name).in(rapid.SampledFrom([]string{"m", "n"}).Draw(t, "namespace"), rapid.SampledFrom([]string{"u", "v", ""}).Draw(t, "user"))
	j.UID = types.UID(name)
	j.Priority = rapid.Int32Range(0, 3).Draw(t, "priority") * 10
	j.Preemptible = rapid.IntRange(0, 4).Draw(t, "preemptible") < 4
	j.QueuedAt = noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "waits")) * time.Minute)
	j.Groups = nil
	for range rapid.IntRange(1, 6).Draw(t, "groups")/6 + 1 {
		g := scheduler.Group{Count: rapid.IntRange(1, 3).Draw(t, "members"),
			Requests: scheduler.Resources{GPUs: rapid.Int64Range(0, 3).Draw(t, "jobGPUs"), MilliCPU: rapid.Int64Range(0, 2).Draw(t, "jobCPU")}}
		switch rapid.IntRange(0, 7).Draw(t, "where") {
		case 7:
			g.NodeSelector = map[string]string{"zone": "b"}
		case 6:
			g.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		j.Groups = append(j.Groups, g)
	}
	if rapid.IntRange(0, 19).Draw(t, "quotaOnly") == 19 {
		j.Groups = nil
	}
	if rapid.IntRange(0, 5).Draw(t, "topology") == 5 {
		j.Topology = "zone"
	}
	if n := rapid.IntRange(0, len(s.Queues)+1).Draw(t, "queue"); n > 0 {
		j.Queue = fmt.Sprintf("q%d", n-1)
	}
	if rapid.IntRange(0, 4).Draw(t, "cluster") == 4 {
		j.Cluster = "c0"
	}
	return scheduler.Job(j)
}
