package aijob

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// delay is what keeps a pod from starting, and for how long that is accepted.
type delay struct {
	// end of the attempt, if nothing changes until due.
	end *failure
	due time.Time
	// now says what is wrong until then; empty when nothing is known to be.
	now string
}

// delayOf is what keeps a pod from starting. Since is when the job was admitted.
func delayOf(pod *corev1.Pod, since time.Time) delay {
	if created := pod.CreationTimestamp.Time; created.After(since) {
		since = created
	}
	who := podend.InWords(pod)
	found := podend.DelayOf(pod)
	patience, detail, end := queueing.Patience(found.Reason), podend.Suffix(found.Detail), &failure{kind: counted, reason: found.Reason}
	switch found.Reason {
	case reasons.Unschedulable:
		message := fmt.Sprintf("%s was not bound to its node within %s%s", who, patience, detail)
		return delay{end: lossOf(found.Reason, message), due: since.Add(patience)}
	case reasons.InvalidImageName:
		message := fmt.Sprintf("%s cannot start: spec.image is not a valid image reference%s", who, detail)
		return delay{end: &failure{kind: hopeless, reason: found.Reason, message: redact.Text(message)}, due: since.Add(patience)}
	case reasons.ContainerConfigError:
		end.kind = hopeless
		return explain(end, who+" lacks what its container needs", detail+"; it starts once that exists", since)
	case reasons.ContainerStartFailed:
		return explain(end, who+" cannot start its container", detail, since)
	case reasons.ImagePullFailed:
		return explain(end, who+" cannot pull image "+found.Image, detail+
			"; use another spec.image in a new AIJob, or add the registry's imagePullSecret to the ServiceAccount", since)
	}
	message := fmt.Sprintf("%s did not start within %s", who, patience)
	return delay{end: lossOf(found.Reason, message), due: since.Add(patience)}
}

// explain is a delay that a user can end in time.
func explain(end *failure, what, detail string, since time.Time) delay {
	patience := queueing.Patience(end.reason)
	due := since.Add(patience)
	fails := "attempt"
	if end.kind == hopeless {
		fails = "job"
	}
	now := redact.Text(fmt.Sprintf("%s%s; the %s fails if that is so at %s", what, detail, fails, due.UTC().Format("15:04:05Z")))
	end.message = redact.Text(fmt.Sprintf("%s, for %s%s", what, patience, detail))
	return delay{end: end, due: due, now: now}
}

// describeStart says what keeps a job's pods from starting, as long as something does.
func (p *planner) describeStart(status *aiplatformv1alpha1.AIJobStatus, by *delay) {
	switch {
	case by != nil:
		status.Reason, status.Message = by.end.reason, by.now
	case status.Reason != reasons.AdmittedByQueue:
		status.Reason, status.Message = reasons.AdmittedByQueue, startMessage(placementOf(status))
	}
}

// startMessage says that pods are being started on these nodes.
func startMessage(nodes []string) string {
	if len(nodes) == 1 {
		return "the pod is being started on node " + nodes[0]
	}
	return fmt.Sprintf("%d pods are being started together on %d nodes", len(nodes), len(assignmentsOf(nodes)))
}

// missingPod is the delay of a pod that does not exist, for example because its creation fails again and again.
func (p *planner) missingPod(since time.Time) delay {
	if due := since.Add(queueing.Patience(reasons.Unschedulable)); p.now.Before(due) {
		p.lookAgainAt(due) // from then on it is also looked for where the cache does not see it
	}
	patience := queueing.Patience(reasons.PodsNotStarted)
	message := fmt.Sprintf("not all pods could be created within %s", patience)
	return delay{end: lossOf(reasons.PodsNotStarted, message), due: since.Add(patience)}
}

// isStarted says whether a pod's container runs or has run.
func isStarted(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodPending }
