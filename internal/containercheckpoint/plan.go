package containercheckpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// Claim is the annotation by which an agent says that a CheckpointBackup is its own: the name of the node, and how often
// it has begun. Who does the work is written nowhere else, and an agent that starts again must know.
const Claim = "training.dcnlab.com/checkpoint-agent"

// attempts is how often a checkpoint is begun that the end of the agent interrupts.
const attempts = 3

// claim is what the annotation says.
type claim struct {
	node    string
	attempt int
}

func readClaim(annotations map[string]string) claim {
	node, attempt, _ := strings.Cut(annotations[Claim], "/")
	number, err := strconv.Atoi(attempt)
	if err != nil {
		number = 1
	}
	return claim{node: node, attempt: number}
}

func (c claim) String() string { return fmt.Sprintf("%s/%d", c.node, c.attempt) }

// observed is what is known of a CheckpointBackup.
type observed struct {
	now    time.Time
	node   string
	object *unstructured.Unstructured // backup as it was read
	backup checkpointbackup.Backup
	claim  claim
	// pod is nil when it does not exist or is not on this node.
	pod      *corev1.Pod
	insecure Insecure
	// yield is how long another agent may come first.
	yield time.Duration
	// graphics is why the pod's GPUs cannot be checkpointed here; empty when they can or there are none.
	graphics string
}

// decision is what to do about a CheckpointBackup: with a claim to begin it, or begin it again, with a message as well to refuse it, and
// without a claim to leave it, because it is done, another's or not for this node.
type decision struct {
	// claim to make before anything else.
	claim claim
	// message says why it is refused.
	message string
	// after is when to look again; 0 for when something changes.
	after time.Duration
}

// plan decides. Everything that it must not do follows from the phase: the agent that wrote one has begun.
func plan(o observed) decision {
	mine := o.claim.node == o.node
	phase := o.backup.Status.Phase
	switch {
	case o.backup.Deleted:
		return decision{}
	case phase != "" && !mine:
		return decision{}
	case phase != "" && !phase.Ended():
		return resume(o)
	case o.pod == nil:
		return decision{}
	}
	at := due(o.backup)
	if at.IsZero() {
		return decision{}
	}
	if phase == "" {
		at = at.Add(o.yield)
	}
	if rest := at.Sub(o.now); rest > 0 {
		return decision{after: rest}
	}
	next := claim{node: o.node, attempt: 1}
	if err := check(o.backup, o.pod, o.insecure, o.now); err != nil {
		return decision{message: err.Error(), claim: next}
	}
	if o.graphics != "" {
		return decision{message: o.graphics, claim: next}
	}
	if o.pod.Status.Phase != corev1.PodRunning {
		// The watch of the pod brings it back.
		return decision{}
	}
	return decision{claim: next}
}

// resume is about a checkpoint that this agent began and did not end: it was stopped meanwhile. A checkpoint leaves the
// container running, so that taking it again does no harm.
func resume(o observed) decision {
	switch {
	case o.pod == nil || podend.IsEnded(o.pod):
		return decision{claim: o.claim, message: "the pod ended before its checkpoint was stored, because the agent was stopped meanwhile"}
	case o.claim.attempt >= attempts:
		return decision{claim: o.claim,
			message: fmt.Sprintf("given up: the agent on node %s was stopped during each of %d attempts: see why it ends", o.node, o.claim.attempt)}
	}
	// The spec may have changed since, and neither the annotation nor the status proves that it was ever checked.
	if err := check(o.backup, o.pod, o.insecure, o.now); err != nil {
		return decision{claim: o.claim, message: err.Error()}
	}
	return decision{claim: claim{node: o.node, attempt: o.claim.attempt + 1}}
}
