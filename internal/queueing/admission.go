// Package queueing runs the scheduler over what the cluster has now, and tells the controllers of jobs what it decided. A decision
// is kept in memory until the controller of the job has written it into the job's status, which is the only record of it:
// after a crash what was not written is decided again.
package queueing

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// Source is a kind whose objects are admitted.
type Source struct {
	// Kind for messages, for example AIJob.
	Kind string
	// Object is an empty one.
	Object client.Object
	// Job is what the scheduler must know of an object: a pure function. State says whether it waits, holds its place (its
	// Placement is then set), or has nothing to do with admission, as one that has ended.
	Job func(client.Object) (scheduler.Job, State)
}

// State of a job for the scheduler.
type State int

// The states.
const (
	// Uninvolved jobs neither wait nor hold anything.
	Uninvolved State = iota
	// Waiting jobs want to be admitted.
	Waiting
	// Holding jobs were admitted, and have not given their place back yet.
	Holding
)

// Decision of the last cycle on a job. At most one of Admitted and Preempted is set; with neither the job waits.
type Decision struct {
	// Admitted says that all members may start now, on these nodes.
	Admitted *scheduler.Admission
	// Preempted says that the job must stop, and for which job.
	Preempted *PreemptedBy
	// Wait says why it waits, while it does.
	Wait *scheduler.Wait
}

// PreemptedBy is the job that takes another's place.
type PreemptedBy struct {
	Kind, Namespace, Name string
	Priority              int32
}

// Decider is what the controllers of jobs ask. Decisions come by their watch on Changes: an event for each job whose decision is
// another than before (a new position in the queue alone is told at most every few seconds).
type Decider interface {
	// Decision on a job; false when no cycle has seen it yet.
	Decision(uid types.UID) (Decision, bool)
	// Changes is the source of events for the controller of a kind.
	Changes(kind string) source.Source
}
