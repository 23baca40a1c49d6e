package framework

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// pyTorch sets the variables that torch.distributed's env:// rendezvous reads, with one process per worker, and the
// PET_* variables that torchrun reads as defaults of its flags, with one process per GPU. So both
// `python train.py` and `torchrun train.py` work.
//
// Sources: https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization and
// https://docs.pytorch.org/docs/stable/elastic/run.html.
type pyTorch struct{}

func (pyTorch) Env(topology Topology) []corev1.EnvVar {
	port := strconv.Itoa(int(topology.MasterPort))
	workers := strconv.Itoa(int(topology.Workers))
	env := []corev1.EnvVar{
		{Name: "MASTER_ADDR", Value: topology.MasterAddress},
		{Name: "MASTER_PORT", Value: port},
		{Name: "WORLD_SIZE", Value: workers},
		replicaIndex("RANK"),
		{Name: "PET_NNODES", Value: workers},
		{Name: "PET_NPROC_PER_NODE", Value: strconv.Itoa(int(max(topology.GPUsPerWorker, 1)))},
		replicaIndex("PET_NODE_RANK"),
		{Name: "PET_MASTER_ADDR", Value: topology.MasterAddress},
		{Name: "PET_MASTER_PORT", Value: port},
	}
	if topology.GPUsPerWorker <= 1 {
		// With several GPUs a launcher starts one process for each and tells it its local rank.
		env = append(env, corev1.EnvVar{Name: "LOCAL_RANK", Value: "0"}, corev1.EnvVar{Name: "LOCAL_WORLD_SIZE", Value: "1"})
	}
	return env
}
