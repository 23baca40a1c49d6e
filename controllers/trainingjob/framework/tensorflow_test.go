package framework

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var tfTopology = Topology{
	Workers: 2, Hosts: []string{"a-training-0.a-headless", "a-training-1.a-headless"}, MasterPort: 2222,
}

func TestEachWorkerReadsTheClusterAndItsTask(t *testing.T) {
	env := tensorFlow.Env(tfTopology)
	require.Len(t, env, 2)
	assert.Equal(t, ReplicaIndex("TF_TASK_INDEX"), env[0], "comes first, so that TF_CONFIG can refer to it")
	assert.Equal(t, "TF_CONFIG", env[1].Name)

	for task := range 2 {
		// What Kubernetes makes of it in the container.
		value := strings.ReplaceAll(env[1].Value, "$(TF_TASK_INDEX)", strconv.Itoa(task))
		var config struct {
			Cluster map[string][]string `json:"cluster"`
			Task    struct {
				Type  string `json:"type"`
				Index int    `json:"index"`
			} `json:"task"`
		}
		require.NoError(t, json.Unmarshal([]byte(value), &config), value)
		assert.Equal(t, map[string][]string{"worker": {"a-training-0.a-headless:2222", "a-training-1.a-headless:2222"}}, config.Cluster)
		assert.Equal(t, "worker", config.Task.Type)
		assert.Equal(t, task, config.Task.Index)
	}
}

func TestAnImageIsNeededForTensorFlow(t *testing.T) {
	assert.Nil(t, tensorFlow.Check(Request{Image: "tensorflow/tensorflow"}))
	assert.ErrorContains(t, tensorFlow.Check(Request{}), "spec.image: is missing: the operator's training worker has no TensorFlow")
}
