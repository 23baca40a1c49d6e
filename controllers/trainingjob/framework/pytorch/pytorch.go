// Package pytorch is PyTorch's torch.distributed, with all ways to share a training over it: DDP and FSDP need the same
// settings.
package pytorch

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
)

// New returns the framework.
func New() launch.Framework { return pyTorch{} }

// pyTorch sets the variables that torch.distributed's env:// rendezvous reads, with one process per worker, and the
// PET_* variables that torchrun reads as defaults of its flags, with one process per GPU. So both
// `python train.py` and `torchrun train.py` work.
//
// Sources: https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization and
// https://docs.pytorch.org/docs/stable/elastic/run.html.
type pyTorch struct{ launch.Plain }

// Env implements launch.Framework.
func (pyTorch) Env(topology launch.Topology) []corev1.EnvVar {
	env := []corev1.EnvVar{
		launch.Text("MASTER_ADDR", topology.MasterAddress),
		launch.Number("MASTER_PORT", topology.MasterPort),
		launch.Number("WORLD_SIZE", topology.Workers),
		launch.ReplicaIndex("RANK"),
		launch.Number("PET_NNODES", topology.Workers),
		launch.Number("PET_NPROC_PER_NODE", topology.Processes()),
		launch.ReplicaIndex("PET_NODE_RANK"),
		launch.Text("PET_MASTER_ADDR", topology.MasterAddress),
		launch.Number("PET_MASTER_PORT", topology.MasterPort),
	}
	if topology.GPUsPerWorker <= 1 {
		// With several GPUs a launcher starts one process for each and tells it its local rank.
		env = append(env, launch.Number("LOCAL_RANK", 0), launch.Number("LOCAL_WORLD_SIZE", 1))
	}
	return env
}
