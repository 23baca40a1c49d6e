package trainingjob

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// mistakes are what is allowed, but hardly ever meant. Each names the field and what to do.
func mistakes(job *mlv1.TrainingJob) []string {
	return slices.Concat(plainSecrets(job), otherGPUs(job), neverHappens(job), lostCheckpoints(job), untracked(job), openRay(job), lonePreflight(job))
}

// plainSecrets are secrets that everyone who may see the job can read.
func plainSecrets(job *mlv1.TrainingJob) []string {
	var list []string
	for i, variable := range job.Spec.Env {
		if variable.Value != "" && redact.NamesSecret(variable.Name) {
			list = append(list, fmt.Sprintf("spec.env[%d]: %s seems to be a secret, which everyone who may see the job can read: "+
				"keep it in a Secret, and name that in valueFrom.secretKeyRef", i, variable.Name))
		}
	}
	if h := job.Spec.Hyperparameters; h != nil {
		for _, name := range slices.Sorted(maps.Keys(h.AdditionalParams)) {
			if redact.NamesSecret(name) {
				list = append(list, fmt.Sprintf("spec.hyperparameters.additionalParams: %s seems to be a secret, which everyone who may see "+
					"the job can read: keep it in a Secret, and name that in spec.env by valueFrom.secretKeyRef", name))
			}
		}
	}
	return list
}

// otherGPUs are accelerators that a worker asks for beside the GPUs of gpusPerWorker, whose default is 1.
func otherGPUs(job *mlv1.TrainingJob) []string {
	gpus := ptr.Deref(job.Spec.GPUsPerWorker, 1)
	if gpus == 0 || job.Spec.Resources == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(job.Spec.Resources.Limits)) {
		if isOtherAccelerator(name) {
			return []string{fmt.Sprintf("spec.gpusPerWorker: each worker asks for %d nvidia.com/gpu beside %s, which hardly any node has together: "+
				"set gpusPerWorker to 0", gpus, name)}
		}
	}
	return nil
}

func isOtherAccelerator(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{"amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "aws.amazon.com/neuron"}, name) ||
		strings.HasPrefix(string(name), "gpu.intel.com/")
}

// neverHappens are settings that the number of epochs leaves without effect.
func neverHappens(job *mlv1.TrainingJob) []string {
	if job.Spec.Hyperparameters == nil || job.Spec.Hyperparameters.Epochs == nil {
		return nil
	}
	var list []string
	epochs := *job.Spec.Hyperparameters.Epochs
	if c := job.Spec.Checkpoint; c != nil && ptr.Deref(c.Enabled, true) && c.Interval == nil && c.Frequency > epochs {
		list = append(list, fmt.Sprintf("spec.checkpoint.frequency: %d is more than spec.hyperparameters.epochs (%d), so that no restart finds a "+
			"checkpoint: lower it, or set interval", c.Frequency, epochs))
	}
	if s := job.Spec.SuccessPolicy; s != nil && s.EarlyStoppingPatience != nil && *s.EarlyStoppingPatience >= epochs {
		list = append(list, fmt.Sprintf("spec.successPolicy.earlyStoppingPatience: %d is not below spec.hyperparameters.epochs (%d), so that the training "+
			"never stops early: lower it, or remove it", *s.EarlyStoppingPatience, epochs))
	}
	return list
}

// lostCheckpoints are those that are deleted soon after the training, with their job.
func lostCheckpoints(job *mlv1.TrainingJob) []string {
	c := job.Spec.Checkpoint
	if job.Spec.TTLSecondsAfterFinished == nil || c == nil || !ptr.Deref(c.Enabled, true) || c.Storage.RetentionPolicy != mlv1.ClaimDelete {
		return nil
	}
	return []string{fmt.Sprintf("spec.checkpoint.storage.retentionPolicy: Delete deletes the checkpoints %d s after the end, with the job (ttlSecondsAfterFinished): "+
		"use Retain, unless the result is kept elsewhere", *job.Spec.TTLSecondsAfterFinished)}
}

// untracked is an experiment that Weights & Biases refuses because it has no key.
func untracked(job *mlv1.TrainingJob) []string {
	m := job.Spec.Monitoring
	if m.WandbProject == "" || m.WandbSecretRef != nil || slices.ContainsFunc(job.Spec.Env, func(variable corev1.EnvVar) bool {
		return variable.Name == "WANDB_API_KEY" || variable.Name == "WANDB_MODE"
	}) {
		return nil
	}
	return []string{"spec.monitoring.wandbSecretRef: is not set, so that the workers have no key for Weights & Biases: " +
		"name the Secret that has it, or set the variable WANDB_MODE to offline"}
}

// openRay is a Ray cluster that runs what any pod of the Kubernetes cluster sends to it.
func openRay(job *mlv1.TrainingJob) []string {
	if job.Spec.Framework != mlv1.FrameworkRay || job.Spec.Networking.Isolation != mlv1.IsolationNone {
		return nil
	}
	return []string{"spec.networking.isolation: None lets every pod of the cluster run programs in this job, because Ray asks at no port who connects: " +
		"remove it, and let in by a NetworkPolicy of your own who must connect"}
}

// lonePreflight is a check of the network between workers where there is only one.
func lonePreflight(job *mlv1.TrainingJob) []string {
	if !ptr.Deref(job.Spec.Networking.Preflight, false) || job.Spec.NumWorkers != 1 || job.Spec.Elastic != nil {
		return nil
	}
	return []string{"spec.networking.preflight: has no effect, because spec.numWorkers is 1: remove it"}
}
