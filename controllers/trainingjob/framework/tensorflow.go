package framework

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// tensorFlow is TensorFlow's tf.distribute, with all replicas as workers. TF_CONFIG, which TFConfigClusterResolver reads, has the addresses
// of all workers, and which of them this one is. Worker 0 is the chief, which MultiWorkerMirroredStrategy makes of it when the cluster names
// none. All of them serve gRPC at the job's master port.
//
// Sources: https://www.tensorflow.org/guide/distributed_training#setting_up_tf_config_environment_variable and
// https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TFConfigClusterResolver.
var tensorFlow = Framework{
	Name: "TensorFlow", ImageExample: "tensorflow/tensorflow",
	Env: func(topology Topology) []corev1.EnvVar {
		return []corev1.EnvVar{ReplicaIndex("TF_TASK_INDEX"), Text("TF_CONFIG", tfConfig(topology))}
	},
}

// tfConfig is TF_CONFIG of each worker.
func tfConfig(topology Topology) string {
	workers := make([]string, 0, len(topology.Hosts))
	for _, host := range topology.Hosts {
		workers = append(workers, host+":"+strconv.Itoa(int(topology.MasterPort)))
	}
	document, _ := json.Marshal(map[string]any{
		"cluster": map[string]any{"worker": workers},
		"task":    map[string]any{"type": "worker", "index": 0},
	}) // strings and a number always have a JSON form
	// Kubernetes puts in the worker's own number, the value of the variable before. It is no string in JSON, so that its place can only be
	// made afterwards.
	return strings.Replace(string(document), `"index":0`, `"index":$(TF_TASK_INDEX)`, 1)
}
