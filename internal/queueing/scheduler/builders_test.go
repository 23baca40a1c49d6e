package scheduler_test

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// nodeBuilder builds nodes. The builders are values: each call gives another one.
type nodeBuilder scheduler.Node

// node with 64 cores, 256 GiB, room for 110 pods, and so many GPUs.
func node(name string, gpus int64) nodeBuilder {
	return nodeBuilder{Name: name, Ready: true, Created: noon.Add(-24 * time.Hour),
		Labels:      map[string]string{corev1.LabelHostname: name},
		Allocatable: scheduler.Resources{MilliCPU: 64000, Memory: 256 << 30, EphemeralStorage: 100 << 30, GPUs: gpus, Pods: 110}}
}

func (b nodeBuilder) label(key, value string) nodeBuilder {
	labels := map[string]string{key: value}
	for k, v := range b.Labels {
		labels[k] = v
	}
	b.Labels = labels
	return b
}

func (b nodeBuilder) taint(key, value string, effect corev1.TaintEffect) nodeBuilder {
	b.Taints = append(b.Taints[:len(b.Taints):len(b.Taints)], corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

func (b nodeBuilder) room(r scheduler.Resources) nodeBuilder      { b.Allocatable = r; return b }
func (b nodeBuilder) requested(r scheduler.Resources) nodeBuilder { b.Requested = r; return b }
func (b nodeBuilder) created(t time.Time) nodeBuilder             { b.Created = t; return b }
func (b nodeBuilder) notReady() nodeBuilder                       { b.Ready = false; return b }

// jobBuilder builds jobs of one group.
type jobBuilder scheduler.Job

// job of one member with one GPU and priority 50, of user u in namespace n, that waits for a minute.
func job(name string) jobBuilder {
	return jobBuilder{UID: types.UID(name), Kind: "AIJob", Namespace: "n", Name: name, User: "u", Priority: 50, Preemptible: true,
		QueuedAt: noon.Add(-time.Minute), Groups: []scheduler.Group{{Count: 1, Requests: scheduler.Resources{GPUs: 1}}}}
}

// group changes the last group.
func (b jobBuilder) group(change func(*scheduler.Group)) jobBuilder {
	groups := append([]scheduler.Group(nil), b.Groups...)
	change(&groups[len(groups)-1])
	b.Groups = groups
	return b
}

func (b jobBuilder) members(n int) jobBuilder {
	return b.group(func(g *scheduler.Group) { g.Count = n })
}

func (b jobBuilder) needs(r scheduler.Resources) jobBuilder {
	return b.group(func(g *scheduler.Group) { g.Requests = r })
}

func (b jobBuilder) gpus(n int64) jobBuilder { return b.needs(scheduler.Resources{GPUs: n}) }

func (b jobBuilder) selector(key, value string) jobBuilder {
	return b.group(func(g *scheduler.Group) { g.NodeSelector = map[string]string{key: value} })
}

func (b jobBuilder) tolerates(t corev1.Toleration) jobBuilder {
	return b.group(func(g *scheduler.Group) { g.Tolerations = []corev1.Toleration{t} })
}

func (b jobBuilder) affinity(key string, op corev1.NodeSelectorOperator, values ...string) jobBuilder {
	return b.group(func(g *scheduler.Group) {
		g.Required = append(slices.Clone(g.Required), &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}}})
	})
}

func (b jobBuilder) avoids(node string) jobBuilder {
	return b.group(func(g *scheduler.Group) {
		g.Required = append(slices.Clone(g.Required), &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}}}}})
	})
}

func (b jobBuilder) and(count int, r scheduler.Resources) jobBuilder {
	b.Groups = append(b.Groups[:len(b.Groups):len(b.Groups)], scheduler.Group{Count: count, Requests: r})
	return b
}

func (b jobBuilder) in(namespace, user string) jobBuilder {
	b.Namespace, b.User = namespace, user
	return b
}
func (b jobBuilder) queue(name string) jobBuilder     { b.Queue = name; return b }
func (b jobBuilder) cluster(name string) jobBuilder   { b.Cluster = name; return b }
func (b jobBuilder) priority(p int32) jobBuilder      { b.Priority = p; return b }
func (b jobBuilder) topology(label string) jobBuilder { b.Topology = label; return b }
func (b jobBuilder) keeps() jobBuilder                { b.Preemptible = false; return b }
func (b jobBuilder) stopping() jobBuilder             { b.Stopping = true; return b }

// waits since so long.
func (b jobBuilder) waits(d time.Duration) jobBuilder { b.QueuedAt = noon.Add(-d); return b }

// runs on nodes since ten minutes, admitted at once.
func (b jobBuilder) runs(nodes ...string) jobBuilder {
	b.Placement = nodes
	return b.since(10 * time.Minute)
}

func (b jobBuilder) since(d time.Duration) jobBuilder {
	b.QueuedAt = noon.Add(-d)
	b.AdmittedAt = b.QueuedAt
	return b
}

// queueBuilder builds queues.
type queueBuilder aiplatformv1alpha1.AIJobQueue

func queue(name string) queueBuilder {
	return queueBuilder{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aiplatformv1alpha1.AIJobQueueSpec{Algorithm: "priority"}}
}

func (b queueBuilder) algorithm(a aiplatformv1alpha1.QueueAlgorithm) queueBuilder {
	b.Spec.Algorithm = a
	return b
}

func (b queueBuilder) suspended() queueBuilder { b.Spec.Suspend = ptr.To(true); return b }

func (b queueBuilder) preempts() queueBuilder {
	b.Spec.PreemptionPolicy = aiplatformv1alpha1.PreemptLowerPriority
	return b
}

func (b queueBuilder) maxJobs(n int32) queueBuilder    { b.Spec.MaxConcurrency = n; return b }
func (b queueBuilder) gpus(n int32) queueBuilder       { return b.quota(gpusOf(n)) }
func (b queueBuilder) borrows(n int32) queueBuilder    { return b.borrowing(gpusOf(n)) }
func (b queueBuilder) cohort(name string) queueBuilder { b.Spec.Cohort = name; return b }
func (b queueBuilder) perUser(jobs int32) queueBuilder {
	b.Spec.UserLimits = &aiplatformv1alpha1.TenantLimits{MaxConcurrency: &jobs}
	return b
}

func (b queueBuilder) perNamespace(gpus int32) queueBuilder {
	b.Spec.NamespaceLimits = &aiplatformv1alpha1.TenantLimits{ResourceLimits: gpusOf(gpus)}
	return b
}

func (b queueBuilder) quota(limits aiplatformv1alpha1.ResourceLimits) queueBuilder {
	b.Spec.Quotas = &limits
	return b
}

func (b queueBuilder) borrowing(limits aiplatformv1alpha1.ResourceLimits) queueBuilder {
	b.Spec.BorrowingLimits = &limits
	return b
}

func (b queueBuilder) selects(key, value string) queueBuilder {
	b.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	return b
}

func (b queueBuilder) maxPriority(p int32) queueBuilder { b.Spec.MaxPriority = &p; return b }

func (b queueBuilder) build() *aiplatformv1alpha1.AIJobQueue {
	return (*aiplatformv1alpha1.AIJobQueue)(&b)
}

func gpusOf(n int32) aiplatformv1alpha1.ResourceLimits {
	return aiplatformv1alpha1.ResourceLimits{GPUs: &n}
}

func cpuOf(milli int64) aiplatformv1alpha1.ResourceLimits {
	return aiplatformv1alpha1.ResourceLimits{CPU: resource.NewMilliQuantity(milli, resource.DecimalSI)}
}

// clusterBuilder builds clusters.
type clusterBuilder aiplatformv1alpha1.ComputeCluster

func cluster(name, key, value string) clusterBuilder {
	return clusterBuilder{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aiplatformv1alpha1.ComputeClusterSpec{
		NodeSelector: map[string]aiplatformv1alpha1.LabelValue{key: aiplatformv1alpha1.LabelValue(value)}}}
}

func (b clusterBuilder) limits(jobs, gpus, nodes *int32) clusterBuilder {
	b.Spec.Capacity, b.Spec.MaxNodes = &aiplatformv1alpha1.ClusterCapacity{MaxJobs: jobs, MaxGPUs: gpus}, nodes
	return b
}

func (b clusterBuilder) maxJobs(n int32) clusterBuilder  { return b.limits(&n, nil, nil) }
func (b clusterBuilder) maxGPUs(n int32) clusterBuilder  { return b.limits(nil, &n, nil) }
func (b clusterBuilder) maxNodes(n int32) clusterBuilder { return b.limits(nil, nil, &n) }

func (b clusterBuilder) build() *aiplatformv1alpha1.ComputeCluster {
	return (*aiplatformv1alpha1.ComputeCluster)(&b)
}

// world builds snapshots.
type world scheduler.Snapshot

func nodes(all ...nodeBuilder) world {
	w := world{Now: noon}
	for _, n := range all {
		w.Nodes = append(w.Nodes, scheduler.Node(n))
	}
	return w
}

func (w world) queues(all ...queueBuilder) world {
	for _, q := range all {
		w.Queues = append(w.Queues, q.build())
	}
	return w
}

// namespace with a label.
func (w world) namespace(name, key, value string) world {
	known := maps.Clone(w.Namespaces)
	if known == nil {
		known = map[string]labels.Set{}
	}
	known[name] = labels.Set{key: value}
	w.Namespaces = known
	return w
}

func (w world) requireQueue() world { w.RequireQueue = true; return w }

func (w world) clusters(all ...clusterBuilder) world {
	for _, c := range all {
		w.Clusters = append(w.Clusters, c.build())
	}
	return w
}

func (w world) running(all ...jobBuilder) world {
	for _, j := range all {
		w.Running = append(w.Running, scheduler.Job(j))
	}
	return w
}

func (w world) pending(all ...jobBuilder) world {
	for _, j := range all {
		w.Pending = append(w.Pending, scheduler.Job(j))
	}
	return w
}

func (w world) schedule() outcome { return outcome(scheduler.Schedule(scheduler.Snapshot(w))) }

// outcome reads decisions.
type outcome scheduler.Decisions

func (o outcome) admitted() []string {
	names := []string{}
	for _, a := range o.Admitted {
		names = append(names, string(a.UID))
	}
	return names
}

func (o outcome) nodesOf(name string) []string {
	for _, a := range o.Admitted {
		if string(a.UID) == name {
			return a.Nodes
		}
	}
	return nil
}

func (o outcome) preempted() []string {
	names := []string{}
	for _, p := range o.Preempted {
		names = append(names, string(p.UID))
	}
	return names
}

func (o outcome) wait(name string) scheduler.Wait {
	for _, w := range o.Waiting {
		if string(w.UID) == name {
			return w
		}
	}
	return scheduler.Wait{}
}

// cpus are so many cores.
func cpus(n int64) scheduler.Resources { return scheduler.Resources{MilliCPU: 1000 * n} }

// at sets the nodes of a running job, and leaves the times as they are.
func (b jobBuilder) at(nodes ...string) jobBuilder { b.Placement = nodes; return b }

// admitted so long ago.
func (b jobBuilder) admitted(d time.Duration) jobBuilder { b.AdmittedAt = noon.Add(-d); return b }
