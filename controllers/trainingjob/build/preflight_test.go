package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func checked(workers int32) *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Workers(workers).Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.Preflight = ptr.To(true) })
}

func TestTheNetworkIsCheckedBeforeAllElse(t *testing.T) {
	job := checked(2).Checkpoints().ResumeFrom("/models/a").Obj()
	pod := Workers(job, Settings{AgentImage: "operator"}, 0).Spec.Template.Spec
	require.Len(t, pod.InitContainers, 3)
	container := pod.InitContainers[0]
	assert.Equal(t, "network-preflight", container.Name)
	assert.Equal(t, "operator", container.Image)
	assert.Equal(t, []string{"network-preflight"}, container.Args)
	assert.Equal(t, podbuild.OperatorResources(WorkerResources(job)), container.Resources)
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	env := map[string]string{}
	for _, variable := range container.Env {
		env[variable.Name] = variable.Value
	}
	assert.Empty(t, cmp.Diff(map[string]string{
		"PREFLIGHT_ID": string(job.UID), "REPLICA_INDEX": "", "MASTER_PORT": "29500", "AGENT_PORT": "9464",
		"PREFLIGHT_PEERS": "bert-training-0.bert-headless,bert-training-1.bert-headless",
	}, env))
}

func TestTheNetworkIsNotChecked(t *testing.T) {
	for name, job := range map[string]*mlv1.TrainingJob{
		"by default":             builders.TrainingJob("bert").Workers(2).Obj(),
		"of a single worker":     checked(1).Obj(),
		"of workers that resize": checked(2).Elastic(1, 3).Obj(),
	} {
		for _, container := range Workers(job, Settings{AgentImage: "operator", WorkerImage: job.Spec.Image}, 0).Spec.Template.Spec.InitContainers {
			assert.NotEqual(t, "network-preflight", container.Name, name)
		}
	}
}
