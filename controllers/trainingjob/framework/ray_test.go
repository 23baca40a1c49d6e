package framework

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestEnvironmentOfRay(t *testing.T) {
	topology := Topology{ID: "uid", Workers: 3, GPUsPerWorker: 2, MasterAddress: "a-training-0.a-headless", MasterPort: 29500}
	assert.Empty(t, cmp.Diff([]corev1.EnvVar{
		{Name: "LAUNCH_REPLICAS", Value: "3"},
		ReplicaIndex("LAUNCH_REPLICA"),
		{Name: "LAUNCH_ADDRESS", Value: "a-training-0.a-headless"},
		{Name: "LAUNCH_PORT", Value: "29499"},
		{Name: "LAUNCH_KEY", Value: "uid"},
		{Name: "LAUNCH_PROCESSES", Value: "2"},
		{Name: "RAY_ADDRESS", Value: "a-training-0.a-headless:6379"},
		{Name: "RAY_HEAD_PORT", Value: "6379"},
		{Name: "RAY_DASHBOARD_PORT", Value: "8265"},
		{Name: "RAY_CLIENT_PORT", Value: "10001"},
		{Name: "RAY_NUM_GPUS", Value: "2"},
		{Name: "RAY_USAGE_STATS_ENABLED", Value: "0"},
	}, ray.Env(topology)))
}

func TestTheDriverRunsUnderTheLauncher(t *testing.T) {
	got := ray.Program(Program{Command: []string{"python", "train.py"}, Args: []string{"--epochs=3"}})
	assert.Equal(t, Program{
		Command: []string{"python3", "/etc/training/launcher.py"},
		Args:    []string{"ray", "--", "python", "train.py", "--epochs=3"},
	}, got)
	assert.Contains(t, ray.Files(), "launcher.py")
}

func TestWhatAJobMustSay(t *testing.T) {
	driver := Program{Command: []string{"python", "train.py"}}
	for name, test := range map[string]struct {
		request Request
		want    string
	}{
		"nothing more": {request: Request{Image: "rayproject/ray", Program: driver}},
		"an image": {
			request: Request{Program: driver}, want: "spec.image: is missing: the operator's training worker has no Ray",
		},
		"a driver": {
			request: Request{Image: "rayproject/ray"}, want: "spec.command: is missing: ray needs the program that runs on the head",
		},
		"other ports": {
			request: Request{Image: "rayproject/ray", Program: driver, Taken: map[string]int32{"spec.monitoring.metricsPort": 8265}},
			want:    "spec.monitoring.metricsPort: 8265 is the port dashboard of ray: choose another one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ray.Check(test.request)
			if test.want == "" {
				assert.Nil(t, got)
				return
			}
			assert.ErrorContains(t, got, test.want)
		})
	}
}
