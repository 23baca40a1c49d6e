package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// readTimeout of a question to the cache, which waits for the API server when it was not asked for a kind before.
const readTimeout = 10 * time.Second

// list reads objects from the cache.
func (c *Cluster) list(ctx context.Context, into client.ObjectList) error {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	if err := c.cached.List(ctx, into); err != nil {
		return unavailable("list objects", err)
	}
	return nil
}

// get reads an object from the cache or the API server. what is its kind, for errors.
func get(ctx context.Context, from client.Reader, name types.NamespacedName, into client.Object, what string) error {
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	err := from.Get(ctx, name, into)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %s: %w", what, name.Name, jobs.ErrNotFound)
	}
	if err != nil {
		return unavailable("read "+what, err)
	}
	return nil
}

// QueueLimits is the maxConcurrency of every AIJobQueue, by name.
func (c *Cluster) QueueLimits(ctx context.Context) (map[string]int, error) {
	var queues aiplatformv1alpha1.AIJobQueueList
	if err := c.list(ctx, &queues); err != nil {
		return nil, err
	}
	limits := map[string]int{}
	for i := range queues.Items {
		limits[queues.Items[i].Name] = int(queues.Items[i].Spec.MaxConcurrency)
	}
	return limits, nil
}

// Workflow is an AgentWorkflow. It is read from the API server: few are asked for, and nothing else here needs them.
func (c *Cluster) Workflow(ctx context.Context, namespace, name string) (*aiplatformv1alpha1.AgentWorkflow, error) {
	workflow := &aiplatformv1alpha1.AgentWorkflow{}
	return workflow, get(ctx, c.direct, types.NamespacedName{Namespace: namespace, Name: name}, workflow, "AgentWorkflow")
}

// Clusters are all ComputeClusters, without their nodes.
func (c *Cluster) Clusters(ctx context.Context) ([]rest.Cluster, error) {
	var clusters aiplatformv1alpha1.ComputeClusterList
	if err := c.list(ctx, &clusters); err != nil {
		return nil, err
	}
	all := make([]rest.Cluster, 0, len(clusters.Items))
	for i := range clusters.Items {
		all = append(all, clusterOf(&clusters.Items[i]))
	}
	slices.SortFunc(all, func(a, b rest.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Cluster is one ComputeCluster with its nodes. The first question has nodes and pods followed from then on.
func (c *Cluster) Cluster(ctx context.Context, name string) (rest.Cluster, error) {
	object := &aiplatformv1alpha1.ComputeCluster{}
	if err := get(ctx, c.cached, types.NamespacedName{Name: name}, object, "ComputeCluster"); err != nil {
		return rest.Cluster{}, err
	}
	var nodes corev1.NodeList
	var pods corev1.PodList
	if err := errors.Join(c.list(ctx, &nodes), c.list(ctx, &pods)); err != nil {
		return rest.Cluster{}, err
	}
	cluster := clusterOf(object)
	cluster.Nodes = nodesOf(object, nodes.Items, pods.Items)
	return cluster, nil
}

// clusterOf is a ComputeCluster as its controller sees it.
func clusterOf(object *aiplatformv1alpha1.ComputeCluster) rest.Cluster {
	status := object.Status
	cluster := rest.Cluster{
		Name: object.Name, Status: strings.ToLower(string(cmp.Or(status.Health, aiplatformv1alpha1.ClusterUnknown))),
		TotalNodes: int(status.TotalNodes), AvailableGPUs: int(status.FreeGPUs), TotalGPUs: int(status.TotalGPUs),
		RunningJobs: int(status.RunningJobs),
	}
	if limits := object.Spec.Capacity; limits != nil {
		cluster.Capacity = &rest.ClusterCapacity{MaxJobs: number(limits.MaxJobs), MaxGPUs: number(limits.MaxGPUs)}
	}
	return cluster
}

func number(value *int32) *int {
	if value == nil {
		return nil
	}
	return new(int(*value))
}

// nodesOf a ComputeCluster, with what the pods on them leave free.
func nodesOf(cluster *aiplatformv1alpha1.ComputeCluster, nodes []corev1.Node, pods []corev1.Pod) []rest.Node {
	selector := labels.Set{}
	for key, value := range cluster.Spec.NodeSelector {
		selector[key] = string(value)
	}
	used := map[string]capacity.Resources{}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		sum, more := used[pod.Spec.NodeName], capacity.Requests(pod)
		sum.MilliCPU, sum.Memory, sum.GPUs = sum.MilliCPU+more.MilliCPU, sum.Memory+more.Memory, sum.GPUs+more.GPUs
		used[pod.Spec.NodeName] = sum
	}
	all := []rest.Node{}
	for i := range nodes {
		node := &nodes[i]
		if !selector.AsSelector().Matches(labels.Set(node.Labels)) {
			continue
		}
		total := capacity.Of(node.Status.Allocatable)
		free := total.Minus(used[node.Name])
		all = append(all, rest.Node{
			Name: node.Name, Ready: ready(node),
			GPUs:   rest.Count{Total: int(total.GPUs), Available: int(max(0, free.GPUs))},
			CPU:    rest.Amount{Total: cpu(total.MilliCPU), Available: cpu(free.MilliCPU)},
			Memory: rest.Amount{Total: memory(total.Memory), Available: memory(free.Memory)},
		})
	}
	slices.SortFunc(all, func(a, b rest.Node) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func cpu(milli int64) string {
	return resource.NewMilliQuantity(max(0, milli), resource.DecimalSI).String()
}

func memory(bytes int64) string {
	return resource.NewQuantity(max(0, bytes), resource.BinarySI).String()
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// trimNode leaves of a node what nodesOf looks at.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Node{Status: corev1.NodeStatus{Allocatable: node.Status.Allocatable}}
	trimmed.Name, trimmed.UID, trimmed.ResourceVersion, trimmed.Labels = node.Name, node.UID, node.ResourceVersion, node.Labels
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return trimmed, nil
}

// trimPod leaves of a pod what counts as its requests.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{Spec: capacity.Bare(&pod.Spec), Status: corev1.PodStatus{Phase: pod.Status.Phase}}
	trimmed.Namespace, trimmed.Name, trimmed.UID, trimmed.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	return trimmed, nil
}
