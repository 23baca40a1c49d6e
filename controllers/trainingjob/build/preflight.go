package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
)

// checksNetwork says whether the workers check that they reach one another. Those that come one by one find others that train already.
func checksNetwork(job *mlv1.TrainingJob, settings Settings) bool {
	return ptr.Deref(job.Spec.Networking.Preflight, false) && job.Spec.NumWorkers > 1 && !ResizesInPlace(job, settings)
}

// addPreflight adds the check of the network to the pods, before all else that they do: its ports are free then.
func addPreflight(pod *corev1.PodSpec, job *mlv1.TrainingJob, settings Settings) {
	if !checksNetwork(job, settings) {
		return
	}
	topology := Topology(job)
	container := operatorContainer(job, settings, preflight.Container, "network-preflight")
	container.Env = []corev1.EnvVar{
		framework.Text("PREFLIGHT_ID", topology.ID),
		framework.Text("PREFLIGHT_PEERS", strings.Join(topology.Hosts, ",")),
		framework.ReplicaIndex("REPLICA_INDEX"),
		framework.Number("MASTER_PORT", topology.MasterPort),
		framework.Number("AGENT_PORT", AgentPort(job, settings)),
	}
	pod.InitContainers = append(pod.InitContainers, container)
}
