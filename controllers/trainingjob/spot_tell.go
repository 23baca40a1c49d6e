package trainingjob

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// preemptionNews are the events of what was seen of nodes that go, and what was done, from one status to the next.
func preemptionNews(before, after *mlv1.TrainingJobStatus) []news {
	list := capacityNews(before, after)
	is := after.Preemption
	if is == nil {
		return list
	}
	was := ptr.Deref(before.Preemption, mlv1.PreemptionStatus{})
	if told := newlyNoticed(was, *is); len(told) > 0 {
		note := "taken back by the provider: " + strings.Join(told, ", ")
		if is.State == mlv1.PreemptionCheckpointing {
			note += "; a checkpoint is asked for (" + is.RequestID + ")"
		}
		list = append(list, news{corev1.EventTypeWarning, "PreemptionNotice", clip(note, maxMessage)})
	}
	if is.State == was.State && is.Count == was.Count {
		return list
	}
	switch {
	case is.State == mlv1.PreemptionWithdrawn:
		list = append(list, news{corev1.EventTypeNormal, "PreemptionNoticeWithdrawn", is.Message})
	case is.State == mlv1.PreemptionLeft && is.CheckpointPath != "":
		list = append(list, news{corev1.EventTypeNormal, "PreemptionCheckpoint", is.Message})
	case is.State == mlv1.PreemptionLeft:
		list = append(list, news{corev1.EventTypeWarning, "PreemptionWithoutCheckpoint", is.Message})
	}
	return list
}

// newlyNoticed names the nodes of which no notice was known.
func newlyNoticed(was, is mlv1.PreemptionStatus) []string {
	known := map[string]bool{}
	for _, node := range was.Nodes {
		known[node.Name] = true
	}
	var told []string
	for _, node := range is.Nodes {
		if known[node.Name] {
			continue
		}
		words := "node " + node.Name
		if node.Deadline != nil {
			words += fmt.Sprintf(" at %s", node.Deadline.UTC().Format("15:04:05Z"))
		}
		told = append(told, words+" ("+node.Source+")")
	}
	return told
}

// capacityNews tell of the condition SpotCapacity.
func capacityNews(before, after *mlv1.TrainingJobStatus) []news {
	was := ptr.Deref(meta.FindStatusCondition(before.Conditions, mlv1.ConditionSpotCapacity), metav1.Condition{})
	is := meta.FindStatusCondition(after.Conditions, mlv1.ConditionSpotCapacity)
	switch {
	case is == nil || is.Status == was.Status && is.Reason == was.Reason:
		return nil
	case is.Status == metav1.ConditionFalse:
		return []news{{corev1.EventTypeWarning, "SpotCapacityMissing", is.Reason + ": " + is.Message}}
	case was.Status == metav1.ConditionFalse:
		return []news{{corev1.EventTypeNormal, "SpotCapacityAvailable", is.Message}}
	}
	return nil
}
