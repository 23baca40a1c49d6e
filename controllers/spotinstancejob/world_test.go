package spotinstancejob

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// world is what a plan observes, built step by step. Its clock stands at noon until it is moved.
type world struct{ observed }

func worldOf(b *builders.SpotInstanceJobBuilder) *world {
	return &world{observed{now: builders.Noon, job: b.Obj(), served: true, nodes: map[string]*node{}}}
}

// job adds the Job of an attempt, with annotations in pairs.
func (w *world) attempt(index int, attempt int32, annotations ...string) *batchv1.Job {
	job := buildJob(w.job, index, attempt, origin{}, 0, nil)
	job.UID = types.UID("uid-of-" + job.Name)
	for i := 0; i < len(annotations); i += 2 {
		job.Annotations[annotations[i]] = annotations[i+1]
	}
	w.jobs = append(w.jobs, job)
	return job
}

// runs adds a Job with a pod that has run on a node since noon, and the status that says so.
func (w *world) runs(index int, attempt int32, on string) (*batchv1.Job, *corev1.Pod) {
	job := w.attempt(index, attempt)
	pod := w.pod(job, on)
	w.knows(job, spotv1alpha1.ReplicaRunning)
	return job, pod
}

// pod adds a pod that runs.
func (w *world) pod(job *batchv1.Job, on string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-pod", Namespace: job.Namespace, Labels: labels.Merge(job.Spec.Template.Labels, map[string]string{labelJobName: job.Name}),
			CreationTimestamp: metav1.NewTime(builders.Noon),
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   corev1.PodSpec{NodeName: on},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if on != "" && w.nodes[on] == nil {
		w.nodes[on] = &node{ready: true}
	}
	w.pods = append(w.pods, pod)
	return pod
}

// knows adds a Job's entry to the status, or changes it.
func (w *world) knows(job *batchv1.Job, phase spotv1alpha1.ReplicaPhase) {
	entry := spotv1alpha1.ReplicaStatus{Name: job.Name, Phase: phase, RestartCount: attemptOf(job)}
	for i := range w.job.Status.JobStatuses {
		known := &w.job.Status.JobStatuses[i]
		if known.Name == job.Name {
			known.Phase = phase
			return
		}
	}
	w.job.Status.JobStatuses = append(w.job.Status.JobStatuses, entry)
}

// notice puts one onto a node, so long ago.
func (w *world) notice(on string, ago time.Duration) {
	at := w.now.Add(-ago)
	w.nodes[on].notice = &nodenotice.Notice{Node: on, Source: nodenotice.MetadataServer, Time: at, Deadline: at.Add(nodenotice.Grace)}
}

// backup adds a checkpoint that was asked for so long ago.
func (w *world) backup(index int, ago time.Duration, phase checkpointbackup.Phase, saves string) *checkpointbackup.Backup {
	at := w.now.Add(-ago)
	name := checkpointName(w.job.Name, index, checkpointNumber(w.job.UID, at))
	backup := checkpointbackup.Backup{
		Key: types.NamespacedName{Namespace: w.job.Namespace, Name: name}, Created: at,
		Labels: map[string]string{
			spotv1alpha1.LabelSpotInstanceJob: w.job.Name, spotv1alpha1.LabelReplica: strconv.Itoa(index), labelJobUID: string(w.job.UID),
		},
		Spec: checkpointbackup.Spec{
			Pod:        types.NamespacedName{Namespace: w.job.Namespace, Name: jobName(w.job.Name, index, 0) + "-pod"},
			Containers: []checkpointbackup.Container{{Name: "train", Image: "registry.example.com:5000/team/checkpoints:" + name}},
		},
		Status: checkpointbackup.Status{Phase: phase},
	}
	if saves != "" {
		backup.Labels[labelSaves] = saves
	}
	if phase.Ended() {
		backup.Status.Completed = at.Add(5 * time.Second)
	}
	if phase == checkpointbackup.Completed {
		backup.Status.Images = backup.Spec.Containers
	}
	w.backups = append(w.backups, backup)
	return &w.backups[len(w.backups)-1]
}

// fail ends a Job for a reason.
func (w *world) fail(job *batchv1.Job, reason string) {
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
		Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: "it failed", LastTransitionTime: metav1.NewTime(w.now),
	})
}

// stop makes a Job suspended, as the Job controller sees it too.
func stop(job *batchv1.Job) {
	job.Spec.Suspend = ptr.To(true)
	job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue})
}

// exit ends a pod with an exit code, after it has run for so long.
func exit(pod *corev1.Pod, code int32, after time.Duration) {
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "train", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: "Error", StartedAt: metav1.NewTime(builders.Noon), FinishedAt: metav1.NewTime(builders.Noon.Add(after)),
		},
	}}}
}

// disrupt ends a pod as Kubernetes does when it takes it away.
func disrupt(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodFailed
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC",
	})
}

// steps is a plan in words, in the order in which it is carried out.
func steps(d desired) []string {
	var list []string
	add := func(format string, a ...any) { list = append(list, fmt.Sprintf(format, a...)) }
	for _, b := range d.checkpoints {
		text := "checkpoint " + b.Spec.Pod.Name
		if saves := b.Labels[labelSaves]; saves != "" {
			text += " for " + saves
		}
		add("%s", text)
	}
	for _, s := range d.suspend {
		switch {
		case s.retire != "":
			add("retire %s: %s", s.job.Name, s.retire)
		case s.to:
			add("suspend %s", s.job.Name)
		default:
			add("resume %s", s.job.Name)
		}
	}
	for _, pod := range d.expel {
		add("expel %s", pod.Name)
	}
	for _, job := range d.remove {
		add("remove %s", job.Name)
	}
	for _, job := range d.create {
		text := "create " + job.Name
		if image := job.Spec.Template.Spec.Containers[0].Image; !strings.HasPrefix(image, "registry.example.com/train") {
			text += " from " + image[strings.LastIndex(image, ":")+1:]
		}
		if failures := failuresBefore(job); failures > 0 {
			text += fmt.Sprintf(" after %d failures", failures)
		}
		add("%s", text)
	}
	for _, b := range d.prune {
		add("prune %s", b.Key.Name)
	}
	return list
}

// replicaPhases are the phases in a status, by name.
func replicaPhases(status spotv1alpha1.SpotInstanceJobStatus) map[string]spotv1alpha1.ReplicaPhase {
	phases := map[string]spotv1alpha1.ReplicaPhase{}
	for _, entry := range status.JobStatuses {
		phases[entry.Name] = entry.Phase
	}
	return phases
}

// conditionsOf are the conditions of a status, in short.
func conditionsOf(status spotv1alpha1.SpotInstanceJobStatus) map[string]string {
	short := map[string]string{}
	for _, c := range status.Conditions {
		short[c.Type] = string(c.Status) + " " + c.Reason
	}
	return short
}

// at moves the clock to so long after noon.
func (w *world) at(after time.Duration) *world {
	w.now = builders.Noon.Add(after)
	return w
}

func spotJob() *builders.SpotInstanceJobBuilder { return builders.SpotInstanceJob("bert") }
