package podend

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// ConditionEnded is the condition of a pod that the operator ends, because all containers of its own had ended while others went on. Its
// reason is the phase in which its own containers leave the pod.
const ConditionEnded corev1.PodConditionType = "training.dcnlab.com/Ended"

// Outlived is a pod whose own containers have ended while others go on, which a webhook has added: ordinary containers of a service mesh, say,
// that only end when they are told to. Its kubelet reports no end of it until then.
type Outlived struct {
	*corev1.Pod

	// Phase is what the pod's own containers leave it in: Succeeded or Failed.
	Phase corev1.PodPhase
	// Others are the names of the containers that go on.
	Others []string
}

// LookAgain is when to look at an outlived pod again: a kubelet may take back what was reported of the pod before its Job has counted it.
const LookAgain = 3 * time.Second

// IsCounted says whether no Job waits for the end of the pod. It may be stopped then, after which its kubelet reports it as failed.
func (o *Outlived) IsCounted() bool {
	return !slices.Contains(o.Finalizers, batchv1.JobTrackingFinalizer)
}

// IsReported says whether the pod has the condition.
func (o *Outlived) IsReported() bool { return isMarked(o.Pod) }

// OutlivedOf are those of the pods that are outlived, and are not being stopped. Own are the names of the containers that their maker gave
// them; policy is their restartPolicy.
func OutlivedOf(pods []*corev1.Pod, policy corev1.RestartPolicy, own ...string) []Outlived {
	var list []Outlived
	for _, pod := range pods {
		stopped := pod.DeletionTimestamp != nil || isMarked(pod) && pod.Spec.ActiveDeadlineSeconds != nil
		if found := (Outlived{Pod: pod, Phase: ownPhase(pod, policy, own)}); found.Phase != "" && !stopped {
			for i := range pod.Status.ContainerStatuses {
				if status := &pod.Status.ContainerStatuses[i]; status.State.Running != nil {
					found.Others = append(found.Others, status.Name)
				}
			}
			if len(found.Others) > 0 {
				list = append(list, found)
			}
		}
	}
	return list
}

// ownPhase is the phase in which its own containers leave a pod; empty as long as one of them runs, or will again.
func ownPhase(pod *corev1.Pod, policy corev1.RestartPolicy, own []string) corev1.PodPhase {
	phase, ended := corev1.PodSucceeded, 0
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if !slices.Contains(own, status.Name) {
			continue
		}
		end := status.State.Terminated
		switch {
		case end == nil, end.ExitCode != 0 && policy != corev1.RestartPolicyNever:
			return ""
		case end.ExitCode != 0:
			phase = corev1.PodFailed
		}
		ended++
	}
	if ended < len(own) {
		return ""
	}
	return phase
}

// Phase of a pod. That of one that was outlived is Running until its last container has ended: a sidecar may still store the last checkpoint.
// It is then that of its own containers, whatever the exit codes of the others are.
func Phase(pod *corev1.PodStatus) corev1.PodPhase {
	mark := mark(pod)
	if mark == nil {
		return pod.Phase
	}
	for _, status := range slices.Concat(pod.InitContainerStatuses, pod.ContainerStatuses) {
		if status.State.Running != nil {
			return corev1.PodRunning
		}
	}
	return corev1.PodPhase(mark.Reason)
}

// SetPhases sets the phases of pods that the API server was asked for. Those in caches have theirs.
func SetPhases(pods []*corev1.Pod) {
	for _, pod := range pods {
		pod.Status.Phase = Phase(&pod.Status)
	}
}

// IsBeingEnded says whether a pod that was outlived has not ended yet.
func IsBeingEnded(pod *corev1.Pod) bool {
	return isMarked(pod) && Phase(&pod.Status) == corev1.PodRunning
}

func isMarked(pod *corev1.Pod) bool { return mark(&pod.Status) != nil }

func mark(pod *corev1.PodStatus) *corev1.PodCondition {
	at := slices.IndexFunc(pod.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == ConditionEnded && condition.Status == corev1.ConditionTrue
	})
	if at < 0 {
		return nil
	}
	return &pod.Conditions[at]
}
