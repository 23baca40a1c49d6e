package trainingjob

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

const (
	// maxSkipped bounds status.checkpoint.skipped.
	maxSkipped = 5
	// maxPath and maxMessage bound what is taken from a report, which comes from a pod that runs its user's code.
	maxPath    = 2048
	maxMessage = 1024
)

// agentView is what is known of the checkpoint agent of replica 0.
type agentView struct {
	// present says that the pod has an agent. A pod that an older version of the operator made has none.
	present bool
	// sync is the newest report of the sidecar, or of the init container while that runs; nil when there is none.
	sync *report.Report
	// restored is the last report of the init container; nil when there is none.
	restored *report.Report
	// ended says that the agent has ended, or its pod is gone.
	ended bool
	// crashing is why the agent does not run although it should; empty when it does.
	crashing string
}

// viewAgent puts together what the pod, its termination message and the last scrape say about the agent.
func (o *observed) viewAgent() agentView {
	var v agentView
	if o.read.Report != nil && o.read.Agent == o.agentURL() { // not that of an earlier attempt
		v.present, v.sync = true, o.read.Report
	}
	pod := masterPod(only(o.pods, o.ofPresentAttempt))
	v.ended = pod == nil || podend.IsEnded(pod)
	if pod == nil && o.isFinalOfAttempt() {
		pod = o.final
	}
	if pod == nil {
		return v
	}
	v.listen(pod)
	if waiting := podend.InitState(pod, report.AgentContainer).Waiting; waiting != nil && waiting.Reason == "CrashLoopBackOff" && !v.ended {
		v.crashing = waiting.Message
	}
	return v
}

// listen takes in the termination messages of the agent's containers.
func (v *agentView) listen(pod *corev1.Pod) {
	for _, status := range pod.Status.InitContainerStatuses {
		var said *report.Report
		if ended := status.State.Terminated; ended != nil {
			if last, ok := report.Parse([]byte(ended.Message)); ok {
				said = &last
			}
		}
		switch status.Name {
		case report.AgentContainer:
			v.present, v.sync = true, cmp.Or(said, v.sync)
		case report.RestoreContainer:
			v.present, v.restored, v.sync = true, said, cmp.Or(v.sync, said)
		}
	}
}

// ofPresentAttempt says whether a pod belongs to the workers, or to those that were just stopped.
func (o *observed) ofPresentAttempt(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && (o.workers == nil || owner.UID == o.workers.UID)
}

// followAgent brings what the agent reports into the status, and has it asked again.
func (p *planner) followAgent() {
	if p.job.Spec.Checkpoint == nil {
		return
	}
	p.agent = p.agentURL()
	v := p.viewAgent()
	if v.sync != nil {
		p.reportAgent(v)
	}
	switch {
	case v.crashing != "":
		p.condition(reasons.ConditionCheckpointReady, false, reasons.CheckpointSidecarCrashing,
			"the checkpoint agent does not stay up, so that checkpoints are not kept safe: "+clip(v.crashing, maxMessage))
	case v.present && v.ended:
		p.reportUnstored(v)
	}
}

// reportAgent makes the status say what is in the storage.
func (p *planner) reportAgent(v agentView) {
	status := cmp.Or(p.status.Checkpoint.DeepCopy(), &mlv1.CheckpointStatus{})
	if newest := v.sync.Newest; newest != nil {
		status.Path, status.Epoch, status.Step, status.SizeBytes = placeOf(p.job, newest.Path), newest.Epoch, newest.Step, newest.SizeBytes
		status.Time, status.ClaimName, status.Kept = nil, "", int32(v.sync.Kept)
		if !newest.Time.IsZero() {
			status.Time = ptr.To(metav1.NewTime(newest.Time.UTC().Truncate(time.Second)))
		}
		if build.UsesClaim(p.job) {
			status.ClaimName = build.ClaimName(p.job)
		}
	}
	restored := v.sync.Restored
	if v.restored != nil {
		restored = v.restored.Restored
	}
	if restored != nil {
		status.RestoredFrom = placeOf(build.ResolveResume(p.job, p.resume), restored.Path)
		if p.workers != nil {
			status.RestoredAttempt = build.AttemptOf(p.workers)
		}
	} else if v.restored != nil {
		status.RestoredFrom, status.RestoredAttempt = "", 0
	}
	status.Skipped = skipped(build.ResolveResume(p.job, p.resume), v)
	if len(status.Skipped) == 0 && p.status.Checkpoint != nil {
		status.Skipped = p.status.Checkpoint.Skipped // what was found before this attempt is still so
	}
	if status.Path != "" || status.RestoredFrom != "" || len(status.Skipped) > 0 || status.Request != nil {
		p.status.Checkpoint = status
	}
	if problem := v.sync.Problem; problem != nil {
		p.condition(reasons.ConditionCheckpointReady, false, reasonOf(problem), clip(problem.Message, maxMessage))
		return
	}
	if build.CheckpointsEnabled(p.job) {
		p.condition(reasons.ConditionCheckpointReady, true, reasons.StorageReady, "checkpoints are kept "+whereKept(p.job))
	}
}

// skipped are the checkpoints that the sidecar and the init container could not use.
func skipped(job *mlv1.TrainingJob, v agentView) []mlv1.CheckpointSkipped {
	found := v.sync.Skipped
	if v.restored != nil && v.restored != v.sync {
		found = slices.Concat(found, v.restored.Skipped)
	}
	var list []mlv1.CheckpointSkipped
	for _, one := range found {
		next := mlv1.CheckpointSkipped{Path: placeOf(job, one.Path), Message: quoted(job, one.Message)}
		known := slices.ContainsFunc(list, func(s mlv1.CheckpointSkipped) bool { return sameCheckpoint(s.Path, next.Path) })
		if !known && len(list) < maxSkipped {
			list = append(list, next)
		}
	}
	return list
}

// reportUnstored says, at the end of the workers, that the training made a checkpoint which is not in the storage.
func (p *planner) reportUnstored(v agentView) {
	ended, ok := p.lastReport()
	if !ok || ended.Checkpoint == nil {
		return
	}
	stored := int64(0)
	if p.status.Checkpoint != nil {
		stored = p.status.Checkpoint.Step
	}
	made := ended.Checkpoint
	if made.Step <= stored {
		return
	}
	why := "the agent was stopped before it was there"
	if v.sync != nil && v.sync.Problem != nil {
		why = clip(v.sync.Problem.Message, maxMessage)
	}
	p.condition(reasons.ConditionCheckpointReady, false, reasons.CheckpointNotStored, fmt.Sprintf(
		"the last checkpoint of the training, of epoch %d and step %d, is not in the storage: %s", made.Epoch, made.Step, why))
}

// restoring says what the job waits for while replica 0 brings back a checkpoint.
func (o *observed) restoring() (reason, message string) {
	v := o.viewAgent()
	if v.ended || v.sync == nil || v.sync.Phase != report.PhaseRestoring {
		return "", ""
	}
	if problem := v.sync.Problem; problem != nil {
		return reasonOf(problem), "no checkpoint could be brought back yet: " + clip(problem.Message, maxMessage)
	}
	return reasons.WorkersStarting, "replica 0 brings back a checkpoint"
}

// keepsFromStarting says whether checkpoints are the reason why a job was not started.
func keepsFromStarting(reason string) bool {
	return reason == reasons.StorageNotSupported || reason == reasons.ClaimNotFound || reason == reasons.ResumeSourceNotFound
}

// reportWorkersCheckpoint takes a worker's own word for its newest checkpoint, unless an agent tells what is in the
// storage.
func (p *planner) reportWorkersCheckpoint(c *progress.Checkpoint) {
	if c == nil || p.viewAgent().present {
		return
	}
	status := &mlv1.CheckpointStatus{Path: c.Path, Epoch: c.Epoch, Step: c.Step, SizeBytes: c.SizeBytes}
	if build.UsesClaim(p.job) { // the path in the volume can be given as resumeFrom of another job
		status.Path, status.ClaimName = strings.TrimPrefix(c.Path, build.CheckpointMount), build.ClaimName(p.job)
	}
	if !c.Time.IsZero() {
		status.Time = ptr.To(metav1.NewTime(c.Time))
	}
	if before := p.status.Checkpoint; before != nil {
		status.RestoredFrom, status.RestoredAttempt = before.RestoredFrom, before.RestoredAttempt
		status.Skipped, status.Request = before.Skipped, before.Request
	}
	p.status.Checkpoint = status
}

// validReason is what the API server takes as a condition's reason.
var validReason = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

func reasonOf(problem *report.Problem) string {
	if validReason.MatchString(string(problem.Reason)) {
		return string(problem.Reason)
	}
	return string(report.ReasonStorageError)
}

// placeOf is a checkpoint's path as it can be given as resumeFrom: the path in the volume, or a URI.
func placeOf(job *mlv1.TrainingJob, at string) string {
	at = clip(at, maxPath)
	if claim, _, ok := build.ResumeClaim(job); ok {
		if below, mounted := strings.CutPrefix(at, build.ResumeMount+"/"); mounted {
			return "pvc://" + claim + "/" + below
		}
	}
	if below, mounted := strings.CutPrefix(at, build.CheckpointMount+"/"); mounted {
		return "/" + below
	}
	return at
}

// whereKept says in words where checkpoints are kept.
func whereKept(job *mlv1.TrainingJob) string {
	storage := &job.Spec.Checkpoint.Storage
	switch build.StorageType(job) {
	case mlv1.StorageS3:
		return "in the S3 bucket " + storage.S3Bucket
	case mlv1.StorageGCS:
		return "in the GCS bucket " + storage.GCSBucket
	case mlv1.StorageAzure:
		return "in the Azure container " + storage.AzureContainer
	case mlv1.StorageNFS:
		return "on the NFS server " + storage.NFSServer
	}
	return "on the claim " + build.ClaimName(job)
}

// quoted are words of others as the status repeats them.
func quoted(job *mlv1.TrainingJob, words string) string {
	return redact.Text(clip(words, maxMessage), plainSecrets(job)...)
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// agentURL is where replica 0's agent is asked; empty when none runs.
func (o *observed) agentURL() string {
	last := masterPod(only(o.pods, func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" && agentRuns(pod) && o.ofPresentAttempt(pod) }))
	if last == nil {
		return ""
	}
	return o.agentAddress(last)
}

// agentAddress is the URL of the port that containers of the operator serve in a pod.
func (o *observed) agentAddress(pod *corev1.Pod) string {
	port := strconv.Itoa(int(build.AgentPort(o.job, o.settings)))
	return "http://" + net.JoinHostPort(pod.Status.PodIP, port)
}

// agentRuns says whether the pod has a container of the agent that can be asked.
func agentRuns(pod *corev1.Pod) bool {
	return podend.InitState(pod, report.RestoreContainer).Running != nil || podend.InitState(pod, report.AgentContainer).Running != nil
}
