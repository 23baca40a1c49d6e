package spotinstancevm

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// demandOf are the pods that need instances: those that the scheduler finds no room for, and those that run on a node
// which will be gone, as long as no other pod has replaced them. A lost pod and its successor count once.
func demandOf(pods []*corev1.Pod, nodes map[string]*corev1.Node, now time.Time) []capacity.Pod {
	type place struct {
		refused []capacity.Pod
		leaving []*corev1.Pod
		staying int
	}
	places := map[string]*place{}
	for _, pod := range pods {
		if podend.IsEnded(pod) {
			continue
		}
		at := places[placeOf(pod)]
		if at == nil {
			at = &place{}
			places[placeOf(pod)] = at
		}
		node, says := nodes[pod.Spec.NodeName], podend.Unschedulable(pod)
		switch {
		case pod.DeletionTimestamp != nil: // its successor will ask for itself
		case pod.Spec.NodeName == "":
			if says != nil {
				refused := demanding(pod)
				refused.Refused, refused.Since = true, says.LastTransitionTime.Time
				at.refused = append(at.refused, refused)
			}
		case node != nil && isLeaving(node, now):
			at.leaving = append(at.leaving, pod)
		default:
			at.staying++
		}
	}
	var demand []capacity.Pod
	for _, at := range places {
		demand = append(demand, at.refused...)
		sortByName(at.leaving)
		for n, pod := range at.leaving {
			if n >= len(at.leaving)-len(at.refused)-at.staying {
				break
			}
			demand = append(demand, demanding(pod))
		}
	}
	slices.SortFunc(demand, func(a, b capacity.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return demand
}

func sortByName(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

func demanding(pod *corev1.Pod) capacity.Pod {
	return capacity.Pod{
		Name: pod.Name, Job: jobOf(pod), Needs: capacity.Requests(pod), Labels: labels.Set(pod.Labels), Apart: capacity.Apart(pod),
	}
}

// placeOf names the place of a pod in its job, which its successor takes: the job and the index of the replica. A pod of
// no job has a place of its own.
func placeOf(pod *corev1.Pod) string {
	index := cmp.Or(pod.Labels[batchv1.JobCompletionIndexAnnotation], pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	if job := jobOf(pod); job != "" {
		return job + "/" + pod.Labels[spotv1alpha1.LabelReplica] + "/" + index
	}
	return "Pod/" + pod.Name
}

// jobOf is the job of a pod as kind/name; empty when it has none.
func jobOf(pod *corev1.Pod) string {
	if name := pod.Labels[spotv1alpha1.LabelSpotInstanceJob]; name != "" {
		return "SpotInstanceJob/" + name
	}
	if name := pod.Labels[mlv1.LabelTrainingJob]; name != "" {
		return "TrainingJob/" + name
	}
	return ""
}

// isLeaving says whether the node will be gone soon.
func isLeaving(node *corev1.Node, now time.Time) bool {
	_, ok := nodenotice.FromNode(node, now)
	return ok
}
