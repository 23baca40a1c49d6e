package build

import (
	"testing"

	"github.com/stretchr/testify/assert"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// A restored job has another UID, and so another place for its checkpoints, than the one that was backed up.
func TestARestoredJobResumesFromTheCheckpointsOfTheOneBefore(t *testing.T) {
	const query = "?endpoint=http%3A%2F%2Fminio%3A9000&region=eu-west-1"
	type want struct{ agent, worker, optional, source string }
	for name, test := range map[string]struct {
		job    *builders.TrainingJobBuilder
		newest string
		want   want
	}{
		"in an object store": {
			builders.TrainingJob("bert").InStorage(builders.S3Storage()), "s3://models/team a/default/bert/former/checkpoints/checkpoint-epoch-3",
			want{
				"s3://models/team%20a/default/bert/former" + query, "/checkpoints/bert/uid-of-bert/.resume", "true",
				"s3://models/team%20a/default/bert/former" + query,
			},
		},
		"on a claim": {
			builders.TrainingJob("bert").Claim("shared"), "/bert/former/checkpoint-epoch-3",
			want{"/checkpoints/bert/former", "/checkpoints/bert/former", "true", "pvc://shared/bert/former"},
		},
		"before its first checkpoint": {
			builders.TrainingJob("bert").Claim("shared"), "",
			want{"/checkpoints/bert/former", "/checkpoints/bert/former", "true", "pvc://shared/bert/former"},
		},
		"with a resumeFrom, before its first checkpoint": {
			builders.TrainingJob("bert").Claim("shared").ResumeFrom("/gpt/checkpoint-epoch-9"), "",
			want{"/checkpoints/gpt/checkpoint-epoch-9", "/checkpoints/gpt/checkpoint-epoch-9", "", "pvc://shared/bert/former"},
		},
		"with a resumeFrom": {
			builders.TrainingJob("bert").Claim("shared").ResumeFrom("/gpt/checkpoint-epoch-9"), "/bert/former/checkpoint-epoch-10",
			want{"/checkpoints/bert/former", "/checkpoints/bert/former", "true", "pvc://shared/bert/former"},
		},
		"once it has a checkpoint of its own": {
			builders.TrainingJob("bert").Claim("shared"), "/bert/uid-of-bert/checkpoint-epoch-4",
			want{"/checkpoints/bert/former", "/checkpoints/bert/former", "true", "pvc://shared/bert/uid-of-bert"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			job.Status.Restored = &mlv1.RestoredStatus{UID: "former"}
			if test.newest != "" {
				job.Status.Checkpoint = &mlv1.CheckpointStatus{Path: test.newest}
			}
			pod := podOf(job, 1)
			agent, worker := variables(pod.InitContainers[0]), variables(pod.Containers[0])
			assert.Equal(t, test.want, want{agent["RESUME_FROM"], worker["RESUME_FROM"], worker["RESUME_OPTIONAL"], SourceOf(job).URI})
			assert.Equal(t, "/checkpoints/bert/uid-of-bert", worker["CHECKPOINT_DIR"], "its own are kept apart from those of a cluster that may still be there")
			assert.Equal(t, agent["RESUME_OPTIONAL"], worker["RESUME_OPTIONAL"])
		})
	}
}

func TestARestoredJobReadsItsCheckpointsWithItsOwnCredentials(t *testing.T) {
	job := builders.TrainingJob("bert").InStorage(builders.S3Storage()).ResumeFrom("s3://old/run").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Checkpoint.ResumeSecretRef = &mlv1.SecretReference{Name: "old-keys"}
	}).Obj()
	assert.Equal(t, "old-keys", ResumeSecret(job))
	job.Status.Restored = &mlv1.RestoredStatus{UID: "former"}
	job.Status.Checkpoint = &mlv1.CheckpointStatus{Path: "s3://models/team a/default/bert/former/checkpoints/checkpoint-epoch-3"}
	assert.Equal(t, "keys", ResumeSecret(job))
}
