// Package tensorflow is TensorFlow's tf.distribute, with all replicas as workers.
package tensorflow

import (
	"encoding/json"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
)

// New returns the framework.
func New() launch.Framework { return tensorFlow{} }

// tensorFlow sets TF_CONFIG, which TFConfigClusterResolver reads: the addresses of all workers, and which of them this
// one is. Worker 0 is the chief, which MultiWorkerMirroredStrategy makes of it when the cluster names none. All of them
// serve gRPC at the job's master port.
//
// Sources: https://www.tensorflow.org/guide/distributed_training#setting_up_tf_config_environment_variable and
// https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver/TFConfigClusterResolver.
type tensorFlow struct{ launch.Plain }

// index stands where a worker's own number goes. Kubernetes puts in the value of the variable, which comes before.
const index = "$(TF_TASK_INDEX)"

// Env implements launch.Framework.
func (tensorFlow) Env(topology launch.Topology) []corev1.EnvVar {
	return []corev1.EnvVar{launch.ReplicaIndex("TF_TASK_INDEX"), launch.Text("TF_CONFIG", config(topology, index))}
}

// config is TF_CONFIG of one task.
func config(topology launch.Topology, task string) string {
	workers := make([]string, 0, len(topology.Hosts))
	for _, host := range topology.Hosts {
		workers = append(workers, host+":"+strconv.Itoa(int(topology.MasterPort)))
	}
	document, _ := json.Marshal(map[string]any{
		"cluster": map[string]any{"worker": workers},
		"task":    map[string]any{"type": "worker", "index": 0},
	}) // strings and a number always have a JSON form
	// The number is no string in JSON, so that it can only be put in afterwards.
	return strings.Replace(string(document), `"index":0`, `"index":`+task, 1)
}

// HasDefaultImage implements launch.Framework.
func (tensorFlow) HasDefaultImage() bool { return false }

// Check implements launch.Framework.
func (tensorFlow) Check(request launch.Request) *launch.Problem {
	return launch.NeedImage(request, "TensorFlow", "tensorflow/tensorflow")
}
