//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

func eviction(pod *corev1.Pod) *policyv1.Eviction {
	return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
}

// The commonest mistakes are told in the status, with the way out.
func TestMistakesAreTold(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	missingClaim := digits(ns, "claim").obj()
	missingClaim.Spec.Checkpoint.Storage = mlv1.CheckpointStorage{Type: mlv1.StoragePVC, ClaimName: "forgotten"}
	missingSecret := digits(ns, "secret").obj()
	missingSecret.Spec.Monitoring.WandbProject = "digits"
	missingSecret.Spec.Monitoring.WandbSecretRef = &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "forgotten"}, Key: "key",
	}
	for name, mistake := range map[string]struct {
		job     *mlv1.TrainingJob
		reason  string
		message string
	}{
		"an image that cannot be pulled": {
			digits(ns, "image").image("127.0.0.1:1/none:none").obj(), reasons.ImagePullFailed, "127.0.0.1:1/none:none",
		},
		"more GPUs than any node has": {digits(ns, "gpus").gpus(64).obj(), reasons.Unschedulable, "nvidia.com/gpu"},
		"a claim that is not there":   {missingClaim, reasons.ClaimNotFound, "forgotten"},
		"a Secret that is not there":  {missingSecret, reasons.ContainerConfigError, "forgotten"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, cluster.Create(t.Context(), mistake.job))
			reaches(t, mistake.job, "the mistake is told", func(job *mlv1.TrainingJob) bool {
				condition := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionInitialized)
				return job.Status.Reason == mistake.reason && condition != nil && condition.Status == metav1.ConditionFalse &&
					strings.Contains(condition.Message, mistake.message)
			})
		})
	}
	t.Run("a StorageClass that is not there", func(t *testing.T) {
		job := digits(ns, "class").obj()
		job.Spec.Checkpoint.Storage = mlv1.CheckpointStorage{Type: mlv1.StoragePVC, StorageClassName: ptr.To("forgotten")}
		require.NoError(t, cluster.Create(t.Context(), job))
		reaches(t, job, "its checkpoints are not ready", func(job *mlv1.TrainingJob) bool {
			ready := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionCheckpointReady)
			return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == reasons.ClaimPending && strings.Contains(ready.Message, `"forgotten" not found`)
		})
	})
	t.Run("a model that the worker does not know", func(t *testing.T) {
		job := digits(ns, "model").alone().obj()
		job.Spec.Model = "no-such-model"
		require.NoError(t, cluster.Create(t.Context(), job))
		failed := reaches(t, job, "it is Failed", inState(mlv1.StateFailed))
		assert.Equal(t, reasons.NonRetryableExitCode, failed.Status.Reason)
		assert.Contains(t, failed.Status.FailureReason, "no-such-model")
		assert.Zero(t, failed.Status.RestartCount)
	})
}
