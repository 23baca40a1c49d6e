//go:build e2e

package e2e

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// framework has the job train with another framework than PyTorch.
func (b *jobBuilder) framework(name mlv1.Framework, model string) *jobBuilder {
	b.job.Spec.Framework, b.job.Spec.Model = name, model
	return b
}

// completed waits for the job's end and checks what holds for every framework.
func completed(t *testing.T, job *mlv1.TrainingJob) *mlv1.TrainingJob {
	t.Helper()
	done := completes(t, job)
	assert.Equal(t, "100%", done.Status.Progress)
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
	assert.Greater(t, done.Status.Metrics["accuracy"], 0.8)
	assert.Equal(t, &mlv1.WorkersStatus{Total: 2, Succeeded: 2}, done.Status.Workers)
	require.NotNil(t, done.Status.Checkpoint)
	assert.Equal(t, int32(8), done.Status.Checkpoint.Epoch)
	return done
}

// ownScript is written as the tutorials of PyTorch are: nothing in it is made for the operator, or for the PyTorch of its image.
const ownScript = `
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DDP(nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.randn(8, 10)), torch.zeros(8, 1)).backward()
    optimizer.step()
weights = model.module.weight.detach().clone()
dist.all_reduce(weights)
assert torch.allclose(weights, size * model.module.weight), "the ranks have different models"
print(f"rank {rank} of {size} has trained", flush=True)
dist.destroy_process_group()
`

func TestAScriptOfTheUserTrainsOnTheDefaultImage(t *testing.T) {
	t.Parallel()
	for name, program := range map[string]string{"env": "python3", "torchrun": "torchrun"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := digits(namespace(t), "own-"+name).env("SCRIPT", ownScript).obj()
			job.Spec.Checkpoint = nil
			job.Spec.Command = []string{"/bin/sh", "-c", `printf %s "$SCRIPT" >/tmp/train.py && exec ` + program + ` /tmp/train.py`}
			require.NoError(t, cluster.Create(t.Context(), job))
			done := completes(t, job)
			assert.Zero(t, done.Status.RestartCount)
			pods := workers(t, job)
			require.Len(t, pods, 2)
			for rank, pod := range pods {
				assert.Contains(t, log(t.Context(), &pod), "rank "+rank+" of 2 has trained")
			}
		})
	}
}

func TestTwoWorkersTrainWithShardedOptimizerState(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "sharded").env("PARALLELISM", "zero").obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completed(t, job)
	assert.Zero(t, done.Status.RestartCount)
	for rank, pod := range workers(t, job) {
		assert.Regexp(t, `rank `+rank+` trained [1-9]\d* samples`, log(t.Context(), &pod))
	}
}

func TestTwoWorkersTrainWithFSDP(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "fsdp").env("PARALLELISM", "fsdp").obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completed(t, job)
	assert.Zero(t, done.Status.RestartCount)
	for rank, pod := range workers(t, job) {
		said := log(t.Context(), &pod)
		assert.Regexp(t, `rank `+rank+` trained [1-9]\d* samples`, said)
		share := regexp.MustCompile(`this rank keeps (\d+) of (\d+) parameters`).FindStringSubmatch(said)
		require.NotNil(t, share, "%s", said)
		kept, err := strconv.Atoi(share[1])
		require.NoError(t, err)
		whole, err := strconv.Atoi(share[2])
		require.NoError(t, err)
		assert.Less(t, kept*10, whole*6, "the parameters are shared out between two ranks")
	}
}

func TestTwoWorkersTrainOverMPI(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "mpi").framework(mlv1.FrameworkMPI, "cnn").obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completed(t, job)
	assert.Zero(t, done.Status.RestartCount)
	pods := workers(t, job)
	require.Len(t, pods, 2)
	master, other := pods["0"], pods["1"]
	// mpirun gathers what all ranks say at replica 0.
	said := log(t.Context(), &master)
	for _, rank := range []string{"0", "1"} {
		assert.Contains(t, said, "rank "+rank+" of 2 joined, backend mpi")
		assert.Regexp(t, `rank `+rank+` trained [1-9]\d* samples`, said)
	}
	assert.Contains(t, log(t.Context(), &other), "replica 0 has ended with exit code 0")
}

func TestAnMPIJobGoesOnAfterItsWorkerIsLost(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "mpi-lost").framework(mlv1.FrameworkMPI, "mlp").pace(100e6).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "two epochs are done", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 3
	})
	lost := workers(t, job)["1"]
	require.NoError(t, cluster.Delete(t.Context(), &lost, client.GracePeriodSeconds(5)))

	done := completed(t, job)
	assert.Equal(t, int32(1), done.Status.RestartCount)
	master := workers(t, job)["0"]
	assert.Regexp(t, `restored at epoch [1-9]`, log(t.Context(), &master))
}

func TestTwoWorkersBoostTreesWithXGBoost(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "xgboost").framework(mlv1.FrameworkXGBoost, "gbtree").obj()
	job.Spec.Hyperparameters.LearningRate = nil
	job.Spec.Hyperparameters.AdditionalParams = map[string]mlv1.ParamValue{"max_depth": "4"}
	require.NoError(t, cluster.Create(t.Context(), job))
	done := completed(t, job)
	assert.Zero(t, done.Status.RestartCount)
	for rank, pod := range workers(t, job) {
		assert.Contains(t, log(t.Context(), &pod), "rank "+rank+" of 2 joined, backend rabit")
		assert.Regexp(t, `rank `+rank+` trained [1-9]\d* samples`, log(t.Context(), &pod))
	}
	assertOnClaim(t, job.Namespace, done.Status.Checkpoint)
}

// What is composed of a replica's number in the environment is checked in a container, since Kubernetes composes it.
func TestEveryReplicaReadsItsOwnTFConfig(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "tensorflow").framework(mlv1.FrameworkTensorFlow, "any").image(workerImage(t)).obj()
	job.Spec.Checkpoint = nil
	job.Spec.Command = []string{"/usr/bin/python3", "-c", `
import json, os
config = json.loads(os.environ["TF_CONFIG"])
print(config["task"]["type"], config["task"]["index"], "of", len(config["cluster"]["worker"]), config["cluster"]["worker"][1])`}
	require.NoError(t, cluster.Create(t.Context(), job))
	completes(t, job)
	pods := workers(t, job)
	require.Len(t, pods, 2)
	for index, pod := range pods {
		assert.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
		assert.Equal(t, "worker "+index+" of 2 tensorflow-training-1.tensorflow-headless:29500\n", log(t.Context(), &pod))
	}
}
