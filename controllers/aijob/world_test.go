package aijob

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// world is what a plan observes, built step by step. Its clock stands at noon until it is moved.
type world struct{ observed }

func worldOf(b *builders.AIJobBuilder) *world {
	return &world{observed{now: builders.Noon, job: b.Obj(), seen: builders.Noon}}
}

// at moves the clock to so long after noon.
func (w *world) at(after time.Duration) *world {
	w.now = builders.Noon.Add(after)
	w.peersLost = map[types.UID]time.Time{}
	for _, pod := range w.pods {
		if ended := program.Terminated(pod); ended != nil {
			w.peersLost[pod.UID] = ended.FinishedAt.Time
		}
	}
	return w
}

// admitted has admission give the job these nodes.
func (w *world) admitted(nodes ...string) *world {
	w.decided, w.decision = true, queueing.Decision{Admitted: &scheduler.Admission{UID: w.job.UID, Nodes: nodes}}
	return w
}

// waits has admission let the job wait.
func (w *world) waits(position int, reason, message string) *world {
	w.decided, w.decision = true, queueing.Decision{Wait: &scheduler.Wait{Position: position, Reason: reason, Message: message}}
	return w
}

// preempted has admission take the job's place for another.
func (w *world) preempted() *world {
	w.decided = true
	w.decision = queueing.Decision{Preempted: &queueing.PreemptedBy{Kind: "AIJob", Namespace: "team", Name: "urgent", Priority: 90}}
	return w
}

// scheduled writes down a place.
func (w *world) scheduled(nodes ...string) *world {
	w.admitted(nodes...)
	w.job.Status = plan(w.observed).status
	w.decision = queueing.Decision{}
	return w
}

// running has all pods run since now.
func (w *world) running(nodes ...string) *world {
	w.scheduled(nodes...)
	for i, node := range nodes {
		w.pod(int32(i), node, corev1.PodRunning)
	}
	w.job.Status = plan(w.observed).status
	return w
}

// pod of a member in the present try.
func (w *world) pod(member int32, node string, phase corev1.PodPhase) *corev1.Pod {
	pod := buildPod(w.job, member, node, "", "")
	pod.UID, pod.CreationTimestamp = types.UID("uid-of-"+pod.Name), metav1.NewTime(w.now)
	pod.Spec = corev1.PodSpec{NodeName: node}
	pod.Status = corev1.PodStatus{Phase: phase}
	w.pods = append(w.pods, pod)
	return pod
}

// exit ends a pod with an exit code and a termination message, after it has run for so long since noon.
func exit(pod *corev1.Pod, code int32, words string, after time.Duration) *corev1.Pod {
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Message: words, Reason: "Error",
			StartedAt: metav1.NewTime(builders.Noon), FinishedAt: metav1.NewTime(builders.Noon.Add(after)),
		},
	}}}
	return pod
}

// hung has a pod wait for something.
func hung(pod *corev1.Pod, reason, message string) *corev1.Pod {
	pod.Status.Phase = corev1.PodPending
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, Image: "registry.example.com/infer:1", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	}}}
	return pod
}

// disrupt ends a pod as Kubernetes does when it takes it away.
func disrupt(pod *corev1.Pod, reason string) *corev1.Pod {
	pod.Status.Phase = corev1.PodFailed
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason,
	})
	return pod
}

// deleted is a pod that a user deletes, so long after noon.
func deleted(pod *corev1.Pod, after time.Duration) *corev1.Pod {
	grace := int64(30)
	pod.DeletionTimestamp = &metav1.Time{Time: builders.Noon.Add(after + 30*time.Second)}
	pod.DeletionGracePeriodSeconds = &grace
	return pod
}

// steps is a plan in words, in the order in which it is carried out.
func steps(d desired) string {
	var list []string
	for _, pod := range d.stop {
		list = append(list, "stop "+pod.Name)
	}
	for _, pod := range d.prune {
		list = append(list, "prune "+pod.Name)
	}
	for _, pod := range d.force {
		list = append(list, "force "+pod.Name)
	}
	for _, service := range d.services {
		list = append(list, "create Service "+service.Name)
	}
	for _, m := range d.members {
		list = append(list, fmt.Sprintf("create %d on %s", m.index, m.node))
	}
	if d.requeued {
		list = append(list, "forget the requeue")
	}
	if d.remove {
		list = append(list, "delete the job")
	}
	return strings.Join(list, ", ")
}

// short is a status in short: phase, reason.
func short(status aiplatformv1alpha1.AIJobStatus) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", status.Phase, status.Reason))
}

// conditions of a status, in short.
func conditions(status aiplatformv1alpha1.AIJobStatus) map[string]string {
	list := map[string]string{}
	for _, c := range status.Conditions {
		list[c.Type] = string(c.Status) + " " + c.Reason
	}
	return list
}

func rawOf(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
