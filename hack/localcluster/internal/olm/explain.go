package olm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const logLines = int64(15)

func (s *Service) explain(ctx context.Context) string { return explainPods(ctx, s.kube, s.namespace) }

// explainPods describes the pods of a namespace that are not ready: the state and the end of the log of each.
func explainPods(ctx context.Context, client kubernetes.Interface, namespace string) string {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "cannot list the pods of " + namespace + ": " + err.Error()
	}
	if len(pods.Items) == 0 {
		return "there are no pods in " + namespace
	}
	var out strings.Builder
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || podReady(pod) {
			continue
		}
		fmt.Fprintf(&out, "pod %s/%s is %s%s\n", namespace, pod.Name, pod.Status.Phase, containerStates(pod))
		log, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: new(logLines)}).DoRaw(ctx)
		if err == nil && len(log) > 0 {
			fmt.Fprintf(&out, "  %s\n", strings.ReplaceAll(strings.TrimSpace(string(log)), "\n", "\n  "))
		}
	}
	if out.Len() == 0 {
		return "all pods of " + namespace + " are ready"
	}
	return strings.TrimRight(out.String(), "\n")
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// containerStates describes the containers that wait or have failed.
func containerStates(pod *corev1.Pod) string {
	var out strings.Builder
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := s.State.Waiting; waiting != nil {
			fmt.Fprintf(&out, "; %s waits: %s %s", s.Name, waiting.Reason, waiting.Message)
		}
		if ended := s.State.Terminated; ended != nil && ended.ExitCode != 0 {
			fmt.Fprintf(&out, "; %s exited with code %d: %s", s.Name, ended.ExitCode, ended.Message)
		}
	}
	return out.String()
}
