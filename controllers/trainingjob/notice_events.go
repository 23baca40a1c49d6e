package trainingjob

import (
	"fmt"
	"strings"

	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// noticeEvents are the events of preemption notices, and of what was done about them, from one status to the next.
func noticeEvents(before, after *mlv1.TrainingJobStatus) []reporting.Event {
	list := conditionEvents(before, after, reasons.ConditionSpotCapacity, "Preempt", reasons.EventSpotCapacityMissing, reasons.EventSpotCapacityAvailable)
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
		list = append(list, reporting.Warning(reasons.EventPreemptionNotice, "Preempt", "%s", clip(note, maxMessage)))
	}
	if is.State == was.State && is.Count == was.Count {
		return list
	}
	switch {
	case is.State == mlv1.PreemptionWithdrawn:
		list = append(list, reporting.Normal(reasons.EventPreemptionNoticeWithdrawn, "Preempt", "%s", is.Message))
	case is.State == mlv1.PreemptionLeft && is.CheckpointPath != "":
		list = append(list, reporting.Normal(reasons.EventPreemptionCheckpoint, "Preempt", "%s", is.Message))
	case is.State == mlv1.PreemptionLeft:
		list = append(list, reporting.Warning(reasons.EventPreemptionWithoutCheckpoint, "Preempt", "%s", is.Message))
	}
	return list
}

// newlyNoticed names the nodes that had no notice before.
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
