package scheduler_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// check holds decisions against the rules, without the scheduler's own code.
func check(s scheduler.Snapshot, d scheduler.Decisions) error {
	pending := map[types.UID]scheduler.Job{}
	for _, j := range s.Pending {
		pending[j.UID] = j
	}
	seen := map[types.UID]bool{}
	after := slices.Clone(s.Running)
	var fresh []scheduler.Job
	for _, a := range d.Admitted {
		j, ok := pending[a.UID]
		if !ok || seen[a.UID] {
			return fmt.Errorf("%s was admitted twice, or did not wait", a.UID)
		}
		seen[a.UID] = true
		j.Placement = a.Nodes
		if err := placedWell(s, j); err != nil {
			return err
		}
		fresh = append(fresh, j)
	}
	for _, w := range d.Waiting {
		if _, ok := pending[w.UID]; !ok || seen[w.UID] || w.Reason == "" || w.Message == "" {
			return fmt.Errorf("%s waits and is admitted, or waits for nothing", w.UID)
		}
		seen[w.UID] = true
	}
	if len(seen) != len(pending) {
		return fmt.Errorf("%d jobs were pending, %d are decided on", len(pending), len(seen))
	}
	after = append(after, fresh...)
	if err := withinNodes(s, after, fresh); err != nil {
		return err
	}
	return withinLimits(s, after, fresh)
}

func placedWell(s scheduler.Snapshot, j scheduler.Job) error {
	at := 0
	zones := map[string]bool{}
	for _, g := range j.Groups {
		for range g.Count {
			if at == len(j.Placement) {
				return fmt.Errorf("%s has too few places", j.UID)
			}
			i := slices.IndexFunc(s.Nodes, func(n scheduler.Node) bool { return n.Name == j.Placement[at] })
			at++
			n := s.Nodes[i]
			zones[n.Labels["zone"]] = true
			for k, v := range g.NodeSelector {
				if n.Labels[k] != v {
					return fmt.Errorf("%s is on %s, which it does not select", j.UID, n.Name)
				}
			}
			if len(n.Taints) > 0 && n.Taints[0].Effect == corev1.TaintEffectNoSchedule && len(g.Tolerations) == 0 {
				return fmt.Errorf("%s is on %s, which is tainted", j.UID, n.Name)
			}
			if !n.Ready {
				return fmt.Errorf("%s is on %s, which is not ready", j.UID, n.Name)
			}
			if j.Cluster != "" && n.Labels["zone"] != "a" {
				return fmt.Errorf("%s is on %s, which is not of its cluster", j.UID, n.Name)
			}
		}
	}
	if at != len(j.Placement) {
		return fmt.Errorf("%s has too many places", j.UID)
	}
	if j.Topology != "" && len(zones) > 1 {
		return fmt.Errorf("%s is in several zones", j.UID)
	}
	return nil
}

func withinNodes(s scheduler.Snapshot, after, fresh []scheduler.Job) error {
	use := func(jobs []scheduler.Job) map[string]scheduler.Resources {
		used := map[string]scheduler.Resources{}
		for _, j := range jobs {
			at := 0
			for _, g := range j.Groups {
				for range g.Count {
					u := used[j.Placement[at]]
					u.GPUs, u.MilliCPU, u.Pods = u.GPUs+g.Requests.GPUs, u.MilliCPU+g.Requests.MilliCPU, u.Pods+1
					used[j.Placement[at]] = u
					at++
				}
			}
		}
		return used
	}
	all, more := use(after), use(fresh)
	for _, n := range s.Nodes {
		u, m := all[n.Name], more[n.Name]
		if m.GPUs > 0 && u.GPUs+n.Requested.GPUs > n.Allocatable.GPUs || m.Pods > 0 && u.Pods > n.Allocatable.Pods ||
			m.MilliCPU > 0 && u.MilliCPU+n.Requested.MilliCPU > n.Allocatable.MilliCPU {
			return fmt.Errorf("%s holds %+v of %+v", n.Name, u, n.Allocatable)
		}
	}
	return nil
}

// sum of what some jobs hold.
type sum struct{ jobs, gpus, cpu int64 }

func sumOf(jobs []scheduler.Job, which func(scheduler.Job) bool) sum {
	var all sum
	for _, j := range jobs {
		if !which(j) {
			continue
		}
		all.jobs++
		for _, g := range j.Groups {
			all.gpus += int64(g.Count) * g.Requests.GPUs
			all.cpu += int64(g.Count) * g.Requests.MilliCPU
		}
	}
	return all
}

func withinLimits(s scheduler.Snapshot, after, fresh []scheduler.Job) error {
	over := func(what string, which func(scheduler.Job) bool, jobs, gpus, cpu *int64) error {
		all, more := sumOf(after, which), sumOf(fresh, which)
		if jobs != nil && more.jobs > 0 && all.jobs > *jobs || gpus != nil && more.gpus > 0 && all.gpus > *gpus || cpu != nil && more.cpu > 0 && all.cpu > *cpu {
			return fmt.Errorf("%s holds %+v, which is too much", what, all)
		}
		return nil
	}
	for _, q := range s.Queues {
		spec := &q.Spec
		in := func(j scheduler.Job) bool { return j.Queue == q.Name }
		if ptr.Deref(spec.Suspend, false) && sumOf(fresh, in).jobs > 0 {
			return fmt.Errorf("%s is suspended", q.Name)
		}
		if spec.MaxConcurrency > 0 {
			if err := over(q.Name, in, as64(&spec.MaxConcurrency), nil, nil); err != nil {
				return err
			}
		}
		if spec.Quotas != nil {
			gpus, cpu := as64(spec.Quotas.GPUs), milli(spec.Quotas)
			if spec.Cohort != "" {
				gpus, cpu = plus(gpus, as64(spec.BorrowingLimits.GPUs)), nil
			}
			if err := over(q.Name, in, nil, gpus, cpu); err != nil {
				return err
			}
		}
		for _, who := range []string{"u", "v", ""} {
			if limits := spec.UserLimits; limits != nil {
				mine := func(j scheduler.Job) bool { return in(j) && j.User == who }
				if err := over(who, mine, as64(limits.MaxConcurrency), as64(limits.GPUs), milli(&limits.ResourceLimits)); err != nil {
					return err
				}
			}
		}
		for _, where := range []string{"m", "n"} {
			if limits := spec.NamespaceLimits; limits != nil {
				mine := func(j scheduler.Job) bool { return in(j) && j.Namespace == where }
				if err := over(where, mine, as64(limits.MaxConcurrency), as64(limits.GPUs), milli(&limits.ResourceLimits)); err != nil {
					return err
				}
			}
		}
	}
	for _, c := range s.Clusters {
		if err := over(c.Name, func(j scheduler.Job) bool { return j.Cluster == c.Name }, as64(c.Spec.Capacity.MaxJobs), as64(c.Spec.Capacity.MaxGPUs), nil); err != nil {
			return err
		}
		used := map[string]bool{}
		for _, j := range fresh {
			for _, n := range j.Placement {
				used[n] = used[n] || j.Cluster == c.Name
			}
		}
		count := 0
		for _, mine := range used {
			if mine {
				count++
			}
		}
		if c.Spec.MaxNodes != nil && count > int(*c.Spec.MaxNodes) {
			return fmt.Errorf("%s uses %d nodes", c.Name, count)
		}
	}
	return withinCohort(s, over)
}

func withinCohort(s scheduler.Snapshot, over func(string, func(scheduler.Job) bool, *int64, *int64, *int64) error) error {
	lend := func(amount func(*aiplatformv1alpha1.ResourceLimits) *int64) (*int64, func(scheduler.Job) bool) {
		whole := int64(0)
		members := map[string]bool{}
		for _, q := range s.Queues {
			if q.Spec.Cohort == "c" && q.Spec.Quotas != nil && amount(q.Spec.Quotas) != nil {
				whole += *amount(q.Spec.Quotas)
				members[q.Name] = true
			}
		}
		return &whole, func(j scheduler.Job) bool { return members[j.Queue] }
	}
	gpus, which := lend(func(q *aiplatformv1alpha1.ResourceLimits) *int64 { return as64(q.GPUs) })
	if err := over("the cohort", which, nil, gpus, nil); err != nil {
		return err
	}
	cpu, which := lend(milli)
	return over("the cohort", which, nil, nil, cpu)
}

func as64(n *int32) *int64 {
	if n == nil {
		return nil
	}
	return ptr.To(int64(*n))
}

func milli(limits *aiplatformv1alpha1.ResourceLimits) *int64 {
	if limits.CPU == nil {
		return nil
	}
	return ptr.To(limits.CPU.MilliValue())
}

func plus(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	both := *a + *b
	return &both
}

// describe a world in few lines, for failures.
func describe(s scheduler.Snapshot) string {
	text := ""
	for _, n := range s.Nodes {
		text += fmt.Sprintf("\n%s gpus=%d cpu=%d-%d pods=%d zone=%s taints=%d ready=%t", n.Name, n.Allocatable.GPUs, n.Allocatable.MilliCPU, n.Requested.MilliCPU,
			n.Allocatable.Pods, n.Labels["zone"], len(n.Taints), n.Ready)
	}
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	for _, q := range s.Queues {
		text += fmt.Sprintf("\n%s %s preempts=%t max=%d cohort=%s suspended=%t", q.Name, q.Spec.Algorithm,
			q.Spec.PreemptionPolicy == aiplatformv1alpha1.PreemptLowerPriority, q.Spec.MaxConcurrency, q.Spec.Cohort, ptr.Deref(q.Spec.Suspend, false))
		if q.Spec.Quotas != nil {
			text += fmt.Sprintf(" quota=%s,%s borrowing=%s", number(as64(q.Spec.Quotas.GPUs)), number(milli(q.Spec.Quotas)), number(as64(q.Spec.BorrowingLimits.GPUs)))
		}
		for what, tenant := range map[string]*aiplatformv1alpha1.TenantLimits{"user": q.Spec.UserLimits, "namespace": q.Spec.NamespaceLimits} {
			if tenant != nil {
				text += fmt.Sprintf(" %s: %s GPUs", what, number(as64(tenant.GPUs)))
				if tenant.MaxConcurrency != nil {
					text += fmt.Sprintf(" %d jobs", *tenant.MaxConcurrency)
				}
			}
		}
	}
	for i, jobs := range [][]scheduler.Job{s.Running, s.Pending} {
		text += []string{"\nrunning", "\npending"}[i]
		for _, j := range jobs {
			text += fmt.Sprintf("\n  %s %s/%s queue=%s cluster=%s p=%d waits=%s topology=%s on=%v stopping=%t preemptible=%t", j.UID, j.Namespace, j.User, j.Queue, j.Cluster,
				j.Priority, s.Now.Sub(j.QueuedAt), j.Topology, j.Placement, j.Stopping, j.Preemptible)
			for _, g := range j.Groups {
				text += fmt.Sprintf(" %dx(%d,%d)%v%d", g.Count, g.Requests.GPUs, g.Requests.MilliCPU, g.NodeSelector, len(g.Tolerations))
			}
		}
	}
	return text
}
