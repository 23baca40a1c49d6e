package framework

import corev1 "k8s.io/api/core/v1"

// pyTorch is PyTorch's torch.distributed, with all ways to share a training over it: DDP and FSDP need the same settings. Its environment
// has the variables that torch.distributed's env:// rendezvous reads, with one process per worker, and the PET_* variables that torchrun
// reads as defaults of its flags, with one process per GPU. So both `python train.py` and `torchrun train.py` work.
//
// Sources: https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization and
// https://docs.pytorch.org/docs/stable/elastic/run.html.
var pyTorch = Framework{
	Name: "PyTorch",
	Env: func(topology Topology) []corev1.EnvVar {
		env := append(rendezvousEnv(topology),
			Number("PET_NNODES", topology.Workers),
			Number("PET_NPROC_PER_NODE", topology.processes()),
			ReplicaIndex("PET_NODE_RANK"),
			Text("PET_MASTER_ADDR", topology.MasterAddress),
			Number("PET_MASTER_PORT", topology.MasterPort),
		)
		if topology.GPUsPerWorker <= 1 {
			// With several GPUs a launcher starts one process for each and tells it its local rank.
			env = append(env, Number("LOCAL_RANK", 0), Number("LOCAL_WORLD_SIZE", 1))
		}
		return env
	},
}
