package framework

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestEnvironmentOfXGBoost(t *testing.T) {
	topology := Topology{Workers: 3, MasterAddress: "a-training-0.a-headless", MasterPort: 9091}
	assert.Empty(t, cmp.Diff([]corev1.EnvVar{
		{Name: "MASTER_ADDR", Value: "a-training-0.a-headless"},
		{Name: "MASTER_PORT", Value: "9091"},
		{Name: "WORLD_SIZE", Value: "3"},
		ReplicaIndex("RANK"),
		{Name: "DMLC_ROLE", Value: "worker"},
		{Name: "DMLC_TRACKER_URI", Value: "a-training-0.a-headless"},
		{Name: "DMLC_TRACKER_PORT", Value: "9091"},
		{Name: "DMLC_NUM_WORKER", Value: "3"},
		{Name: "DMLC_NUM_SERVER", Value: "0"},
		ReplicaIndex("DMLC_TASK_ID"),
	}, xgBoost.Env(topology)))
}
