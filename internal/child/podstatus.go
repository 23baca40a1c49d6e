package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// FailPod ends a pod whose kubelet is gone as the garbage collection of Kubernetes does once the object of the node is gone: it reports the
// pod as failed, lost with its node unless it says already for what, and deletes it without a grace period. It passes over a pod that is
// gone.
func (w Writer) FailPod(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	var condition *corev1.PodCondition
	if !slices.ContainsFunc(pod.Status.Conditions, isDisruption) {
		condition = &corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasons.NodeLost, LastTransitionTime: metav1.NewTime(now),
			Message: "the kubelet did not end the pod within its grace period",
		}
	}
	if gone, err := w.reportPod(ctx, pod, corev1.PodFailed, condition); gone || err != nil {
		return err
	}
	return w.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

// EndPods ends pods that were outlived. It reports them in the phase of their own containers, so that their Jobs count them so, and until these
// have: a kubelet takes the phase back after some seconds. Then it limits the time of the pods, so that their kubelets stop the other containers
// within the pods' grace period. It passes over pods that are gone.
func (w Writer) EndPods(ctx context.Context, pods []podend.Outlived, now time.Time) error {
	var failed []error
	for _, pod := range pods {
		if pod.IsReported() && pod.IsCounted() {
			failed = append(failed, w.Merge(ctx, pod.Pod, map[string]any{"spec": map[string]any{"activeDeadlineSeconds": 1}}))
			continue
		}
		_, err := w.reportPod(ctx, pod.Pod, pod.Phase, &corev1.PodCondition{
			Type: podend.ConditionEnded, Status: corev1.ConditionTrue, Reason: string(pod.Phase), LastTransitionTime: metav1.NewTime(now),
			Message: "the containers of the job have ended; the operator ends those that go on: " + strings.Join(pod.Others, ", "),
		})
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// reportPod writes the phase of a pod, and a condition if there is one, and says whether the pod is gone.
func (w Writer) reportPod(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, condition *corev1.PodCondition) (gone bool, err error) {
	status := map[string]any{"phase": phase}
	if condition != nil {
		status["conditions"] = []corev1.PodCondition{*condition}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return false, fmt.Errorf("encode the status of %s: %w", w.describe(pod), err)
	}
	err = w.Client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch), w.fieldOwner())
	if isGone(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("report %s as %s: %w", w.describe(pod), phase, err)
	}
	return false, nil
}

func isDisruption(condition corev1.PodCondition) bool {
	return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
}
