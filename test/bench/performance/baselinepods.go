package performance

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// watchPods has every new pod live. It sees only those that are not bound yet, which is all that a scheduler looks for.
func (l *queueLoad) watchPods(ctx context.Context, version string) {
	for ctx.Err() == nil {
		watched, err := l.typed.CoreV1().Pods(l.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=", ResourceVersion: version})
		if err != nil {
			l.fail(fmt.Errorf("watch pods: %w", err))
			return
		}
		for is := range watched.ResultChan() {
			pod, ok := is.Object.(*corev1.Pod)
			if !ok {
				l.fail(fmt.Errorf("watch pods: %w", apierrors.FromObject(is.Object)))
				return
			}
			version = pod.ResourceVersion
			if is.Type == watch.Added {
				go func() {
					if err := l.live(ctx, pod); err != nil {
						l.fail(fmt.Errorf("pod %s: %w", pod.Name, err))
					}
				}()
			}
		}
	}
}

// live plays kube-scheduler and kubelet for a pod: it is bound to the only node that it may run on, runs for its time, and succeeds.
func (l *queueLoad) live(ctx context.Context, pod *corev1.Pod) error {
	j := l.jobs[pod.Labels[aiplatformv1alpha1.LabelAIJob]]
	if j == nil {
		return errors.New("belongs to none of the jobs")
	}
	node, err := nodeOf(pod)
	if err != nil {
		return err
	}
	l.hold(j.Cohort, j.Class.Units)
	began, err := l.run(ctx, pod, node)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(j.Class.Runs):
	}
	l.hold(j.Cohort, -j.Class.Units)
	return l.succeed(ctx, pod, began)
}

// run binds a pod and has it run.
func (l *queueLoad) run(ctx context.Context, pod *corev1.Pod, node string) (metav1.Time, error) {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	began := metav1.Now()
	if err := l.typed.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return began, fmt.Errorf("bind it: %w", err)
	}
	return began, l.report(ctx, pod, began, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}})
}

// succeed has a pod end.
func (l *queueLoad) succeed(ctx context.Context, pod *corev1.Pod, began metav1.Time) error {
	return l.report(ctx, pod, began, corev1.PodSucceeded, corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: began, FinishedAt: metav1.Now()},
	})
}

// nodeOf is the node that a pod's affinity names.
func nodeOf(pod *corev1.Pod) (string, error) {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			for _, term := range required.NodeSelectorTerms {
				for _, field := range term.MatchFields {
					if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
						return field.Values[0], nil
					}
				}
			}
		}
	}
	return "", errors.New("its affinity names no node")
}

// report writes a pod's status as a kubelet does, in one request.
func (l *queueLoad) report(ctx context.Context, pod *corev1.Pod, began metav1.Time, phase corev1.PodPhase, state corev1.ContainerState) error {
	ready, why := corev1.ConditionTrue, ""
	if phase == corev1.PodSucceeded {
		ready, why = corev1.ConditionFalse, "PodCompleted"
	}
	now := metav1.Now()
	condition := func(kind corev1.PodConditionType, is corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: is, Reason: reason, LastTransitionTime: now}
	}
	is := &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy()} // the server keeps the rest as it is
	is.ResourceVersion, is.ManagedFields = "", nil
	is.Status = corev1.PodStatus{
		Phase: phase, StartTime: &began, PodIP: "10.64.0.1", PodIPs: []corev1.PodIP{{IP: "10.64.0.1"}}, HostIP: "127.0.0.1",
		HostIPs: []corev1.HostIP{{IP: "127.0.0.1"}},
		Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled, corev1.ConditionTrue, ""), condition(corev1.PodInitialized, corev1.ConditionTrue, why),
			condition(corev1.PodReady, ready, why), condition(corev1.ContainersReady, ready, why),
		},
	}
	for i := range pod.Spec.Containers {
		running := state.Running != nil
		is.Status.ContainerStatuses = append(is.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: pod.Spec.Containers[i].Name, Image: pod.Spec.Containers[i].Image, ImageID: "simulated", ContainerID: "simulated://" + string(pod.UID),
			Ready: running, Started: &running, State: state,
		})
	}
	err := l.typed.CoreV1().RESTClient().Put().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").Body(is).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("report that it is %s: %w", phase, err)
	}
	return nil
}
