package builders

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// AdvancedTraining is the sample of that name with all its fields, but with checkpoints on a claim instead of S3.
func AdvancedTraining(t testing.TB) *mlv1.TrainingJob {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", "samples", "seed-001-advanced-resnet152.yaml"))
	require.NoError(t, err)
	job := TrainingJob("advanced-training").Obj()
	require.NoError(t, yaml.UnmarshalStrict(text, job))
	job.Spec.Checkpoint.Storage = mlv1.CheckpointStorage{
		Type: mlv1.StoragePVC, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
	}
	job.Spec.Checkpoint.ResumeFrom = "pvc://ml-checkpoints/resnet152/checkpoint-epoch-50"
	return job
}
