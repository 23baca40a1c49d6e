package spotinstancevm

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// phase of an instance's life. Each has a file of its own that decides what happens in it.
type phase string

const (
	phaseLaunch    phase = "launch"    // asked for, and not known to exist
	phaseJoin      phase = "join"      // exists, and is not yet a ready node
	phaseReady     phase = "ready"     // is a ready node
	phasePreempted phase = "preempted" // its provider takes it back, or has stopped it
	phaseGone      phase = "gone"      // its deletion is decided
)

// instance is one instance of a SpotInstanceVM as it was observed. The embedded entry of the status is what the plan
// changes.
type instance struct {
	spotv1alpha1.ProvisionedInstance

	// seen is what the provider last said of it; nil when it did not know it, or was not asked yet.
	seen *cloud.Instance
	// asOf is when the provider was asked; zero when it was not. looked says that it was asked for this very instance, not
	// for a list.
	asOf   time.Time
	looked bool

	node *corev1.Node // nil when there is none
	// notice that is on the node, if noticed.
	notice  nodenotice.Notice
	noticed bool
	// pods of jobs that are on the node and have not ended.
	pods []*corev1.Pod
	// use is what admission by queues knows of the node; nil when it knows nothing.
	use *queueing.NodeUse
	// rechecked says that pods were read from the API server itself.
	rechecked bool

	// memo is what this process remembers of its requests.
	memo memo

	dropped bool // the plan takes it off the status
	used    bool // the plan needs it for pods that have no room
}

func (i *instance) isConfirmed() bool { return i.CreationTime != nil }

// isAbsent says whether the provider was asked since the instance is known to have existed, and did not know it.
func (i *instance) isAbsent() bool {
	if i.seen != nil || !i.isConfirmed() {
		return false
	}
	return i.asOf.After(i.CreationTime.Time) && i.asOf.After(i.memo.create.settledAt)
}

// isMissing says whether the instance is gone without the operator's doing. A list alone is not believed.
func (i *instance) isMissing() bool { return i.isAbsent() && i.looked }

// What the provider says of an instance that no longer runs at all, and of one that is about to be so.
var (
	halted   = []spotv1alpha1.InstanceState{spotv1alpha1.InstanceTerminated, spotv1alpha1.InstanceSuspended, "STOPPED"}
	stopping = []spotv1alpha1.InstanceState{spotv1alpha1.InstanceStopping, "SUSPENDING", "PENDING_STOP"}
)

// isStopped says whether the provider has stopped it, or is about to.
func (i *instance) isStopped() bool { return i.isHalted() || slices.Contains(stopping, i.State) }

// isHalted says whether a stopped instance no longer runs at all.
func (i *instance) isHalted() bool { return slices.Contains(halted, i.State) }

// isEnding says whether the instance ends without the operator.
func (i *instance) isEnding() bool {
	return i.noticed || i.isStopped() || i.PreemptionNoticeTime != nil
}

func (i *instance) phase() phase {
	switch {
	case i.State == spotv1alpha1.InstanceDeleting:
		return phaseGone
	case !i.isConfirmed():
		return phaseLaunch
	case i.isEnding() || i.isMissing():
		return phasePreempted
	case i.ReadyTime == nil || i.node == nil:
		return phaseJoin
	default:
		return phaseReady
	}
}

// readiness is the condition Ready of the node; nil when there is none.
func (i *instance) readiness() *corev1.NodeCondition {
	if i.node == nil {
		return nil
	}
	return reconciling.Find(i.node.Status.Conditions, func(c *corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
}

func (i *instance) isNodeReady(gpus int64) bool {
	ready := i.readiness()
	return ready != nil && ready.Status == corev1.ConditionTrue && i.node.DeletionTimestamp == nil &&
		capacity.Of(i.node.Status.Allocatable).GPUs >= gpus
}

// notReadySince is when the node stopped being Ready; false when it is, or there is none.
func (i *instance) notReadySince() (time.Time, bool) {
	if ready := i.readiness(); ready != nil && ready.Status != corev1.ConditionTrue {
		return ready.LastTransitionTime.Time, true
	}
	return time.Time{}, false
}

// hasWork says whether pods of jobs are on the node, or are to be.
func (i *instance) hasWork() bool { return len(i.pods) > 0 || i.use != nil && i.use.Jobs }

// isTaintedIdle says whether the node is kept free for deletion.
func (i *instance) isTaintedIdle() bool {
	return i.node != nil && idleTaint(i.node) != nil
}

// taintedIdleAt is since when the node is kept free for deletion; zero when it is not, or that is not known.
func (i *instance) taintedIdleAt() time.Time {
	if taint := idleTaint(i.node); taint != nil && taint.TimeAdded != nil {
		return taint.TimeAdded.Time
	}
	return time.Time{}
}

// idleTaint is what keeps a node free for deletion; nil when it is not.
func idleTaint(node *corev1.Node) *corev1.Taint {
	return reconciling.Find(node.Spec.Taints, func(taint *corev1.Taint) bool { return taint.Key == spotv1alpha1.TaintIdle })
}
