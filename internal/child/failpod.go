package child

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// FailPod ends a pod whose kubelet is gone as the garbage collection of Kubernetes does once the object of the node is gone: it reports the
// pod as failed, lost with its node unless it says already for what, and deletes it without a grace period. It passes over a pod that is
// gone.
func (w Writer) FailPod(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	status := map[string]any{"phase": corev1.PodFailed}
	if !slices.ContainsFunc(pod.Status.Conditions, isDisruption) {
		status["conditions"] = []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasons.NodeLost, LastTransitionTime: metav1.NewTime(now),
			Message: "the kubelet did not end the pod within its grace period",
		}}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", w.describe(pod), err)
	}
	err = w.Client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch), w.fieldOwner())
	if isGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("report %s as failed: %w", w.describe(pod), err)
	}
	return w.Delete(ctx, pod, client.GracePeriodSeconds(0))
}

func isDisruption(condition corev1.PodCondition) bool {
	return condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue
}
