package checkpointbackup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

func decode(t *testing.T, text string) Backup {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
	return Decode(object)
}

func whole() Backup {
	return Backup{
		Key:    types.NamespacedName{Namespace: "team", Name: "bert-0-7"},
		Labels: map[string]string{"a": "b"},
		Spec: Spec{
			Schedule: Immediately, StopPod: true,
			Pod:      types.NamespacedName{Namespace: "team", Name: "bert-0-x"},
			Resource: Resource{APIVersion: "batch/v1", Kind: "Job", Namespace: "team", Name: "bert-0"},
			Registry: Registry{
				URL: "registry.example.com", Repository: "team/checkpoints",
				Secret: types.NamespacedName{Namespace: "team", Name: "push"},
			},
			Containers: []Container{{Name: "train", Image: "registry.example.com/team/checkpoints:bert-0-7"}},
		},
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for _, version := range Versions {
		object := Encode(whole(), version)
		assert.Equal(t, "migration.dcnlab.com/"+version, object.GetAPIVersion())
		assert.Equal(t, whole(), Decode(object))

		ended := whole()
		ended.Status = Status{
			Phase: Completed, Message: "stored", Completed: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
			Images: []Container{{Name: "train", Image: "registry.example.com/team/checkpoints:bert-0-7"}},
		}
		object.Object["status"] = EncodeStatus(ended.Status)
		assert.Equal(t, ended, Decode(object))
		assert.NotPanics(t, func() { object.DeepCopy() }, "it is made of what JSON has")
	}
}

func TestStatusOfEitherKindOfAgentIsRead(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		status string
		want   Status
	}{
		"not begun":   {`{}`, Status{}},
		"in progress": {`{phase: ImagePushing, message: half}`, Status{Phase: ImagePushing, Message: "half"}},
		"with containers": {
			`{phase: Completed, completionTime: "2026-03-01T12:00:00Z", containers: [{name: a, image: x}, {name: b, image: z}]}`,
			Status{Phase: Completed, Completed: at, Images: []Container{{"a", "x"}, {"b", "z"}}},
		},
		"with builtImages": {
			`{phase: Completed, lastCheckpointTime: "2026-03-01T12:00:00.0Z", builtImages: [{containerName: a, imageName: x, pushed: true}]}`,
			Status{Phase: Completed, Completed: at, Images: []Container{{"a", "x"}}},
		},
		"a time of the checkpoint before the last": {
			`{phase: Checkpointing, lastCheckpointTime: "2026-03-01T12:00:00Z"}`, Status{Phase: Checkpointing},
		},
		"of wrong types": {
			`{phase: 7, completionTime: soon, containers: [1, {image: x}, {name: [a]}], builtImages: {a: b}}`, Status{},
		},
		"a phase of tomorrow": {`{phase: StoringCheckpoint}`, Status{Phase: "StoringCheckpoint"}},
	} {
		got := decode(t, "status: "+test.status).Status
		assert.Equal(t, test.want, got, name)
	}
	assert.False(t, Phase("StoringCheckpoint").Ended(), "what is not known is going on")
}

func TestNamespacesAreThatOfTheObjectWhenLeftOut(t *testing.T) {
	b := decode(t, `
metadata: {namespace: team, name: x}
spec:
  schedule: immediately
  podRef: {name: p}
  resourceRef: {kind: Job, name: j}
  registry: {url: registry.example.com, repository: r, secretRef: {name: s}}
`)
	assert.Equal(t, types.NamespacedName{Namespace: "team", Name: "p"}, b.Spec.Pod)
	assert.Equal(t, "team", b.Spec.Resource.Namespace)
	assert.Equal(t, types.NamespacedName{Namespace: "team", Name: "s"}, b.Spec.Registry.Secret)
	assert.Empty(t, decode(t, `{metadata: {namespace: team}, spec: {}}`).Spec.Registry.Secret, "no Secret is none")
}
