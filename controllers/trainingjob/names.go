package trainingjob

import (
	"strings"

	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func workersName(job *mlv1.TrainingJob) string  { return job.Name + "-training" }
func headlessName(job *mlv1.TrainingJob) string { return job.Name + "-headless" }
func masterName(job *mlv1.TrainingJob) string   { return job.Name + "-master" }
func configName(job *mlv1.TrainingJob) string   { return job.Name + "-config" }

// serviceAccountName is the ServiceAccount of the workers: the spec's, or the one that the operator makes.
func serviceAccountName(job *mlv1.TrainingJob) string {
	if job.Spec.ServiceAccountName != "" {
		return job.Spec.ServiceAccountName
	}
	return job.Name + "-training"
}

// claimName is the claim that holds the job's checkpoints: the spec's, or the one that the operator makes.
func claimName(job *mlv1.TrainingJob) string {
	if c := job.Spec.Checkpoint; c != nil && c.Storage.ClaimName != "" {
		return c.Storage.ClaimName
	}
	return job.Name + "-checkpoints"
}

// masterAddress is the DNS name of replica 0, which the Job controller makes its pod's host name and the headless
// Service publishes. It is resolved through the search path of the pods, so that the cluster's domain need not be known.
func masterAddress(job *mlv1.TrainingJob) string {
	return workersName(job) + "-0." + headlessName(job)
}

// checkpointsEnabled says whether the job saves checkpoints.
func checkpointsEnabled(job *mlv1.TrainingJob) bool {
	return job.Spec.Checkpoint != nil && ptr.Deref(job.Spec.Checkpoint.Enabled, true)
}

// usesClaim says whether the job's checkpoints lie on a claim.
func usesClaim(job *mlv1.TrainingJob) bool {
	return checkpointsEnabled(job) && storageType(job) == mlv1.StoragePVC
}

// createsClaim says whether the operator makes the claim.
func createsClaim(job *mlv1.TrainingJob) bool {
	return usesClaim(job) && job.Spec.Checkpoint.Storage.ClaimName == ""
}

func storageType(job *mlv1.TrainingJob) mlv1.StorageType {
	if t := job.Spec.Checkpoint.Storage.Type; t != "" {
		return t
	}
	return mlv1.StoragePVC
}

// namedClaims are the claims that the spec names and that must exist before the job can start.
func namedClaims(job *mlv1.TrainingJob) []string {
	var names []string
	if usesClaim(job) && !createsClaim(job) {
		names = append(names, claimName(job))
	}
	if claim, _, ok := resumeClaim(job); ok && claim != claimName(job) {
		names = append(names, claim)
	}
	return names
}

// resumeClaim returns the claim and the path in it when resumeFrom is a pvc:// URI.
func resumeClaim(job *mlv1.TrainingJob) (claim, path string, ok bool) {
	if job.Spec.Checkpoint == nil {
		return "", "", false
	}
	rest, ok := strings.CutPrefix(job.Spec.Checkpoint.ResumeFrom, "pvc://")
	if !ok {
		return "", "", false
	}
	claim, path, _ = strings.Cut(rest, "/")
	return claim, path, true
}
