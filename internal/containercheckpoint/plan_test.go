package containercheckpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func runningPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "bert-0"},
		Spec: corev1.PodSpec{NodeName: "node-a", Containers: []corev1.Container{
			{Name: "train"}, {Name: "log"},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// asked is a CheckpointBackup of the running pod, and what this node's agent knows of it.
func asked(change ...func(*observed)) observed {
	o := observed{
		now: noon, node: "node-a", yield: 2 * time.Second, pod: runningPod(),
		backup: checkpointbackup.Backup{
			Key: types.NamespacedName{Namespace: "team", Name: "b"}, Created: noon.Add(-time.Minute),
			Spec: checkpointbackup.Spec{
				Schedule: checkpointbackup.Immediately, Pod: types.NamespacedName{Namespace: "team", Name: "bert-0"},
				Registry:   checkpointbackup.Registry{URL: "registry.example.com", Repository: "team/checkpoints"},
				Containers: []checkpointbackup.Container{{Name: "train", Image: "registry.example.com/team/checkpoints:one"}},
			},
		},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func phase(p checkpointbackup.Phase, at time.Time) func(*observed) {
	return func(o *observed) { o.backup.Status.Phase, o.backup.Status.Completed = p, at }
}

func claimed(node string, attempt int) func(*observed) {
	return func(o *observed) { o.claim = claim{node: node, attempt: attempt} }
}

func TestAnAgentDoesWhatIsItsOwn(t *testing.T) {
	first := claim{node: "node-a", attempt: 1}
	nightly := func(o *observed) { o.backup.Spec.Schedule = "0 2 * * *" }
	for name, test := range map[string]struct {
		seen observed
		want decision
	}{
		"begins what no agent has begun":    {asked(), decision{claim: first}},
		"lets another agent come first":     {asked(func(o *observed) { o.backup.Created = noon.Add(-500 * time.Millisecond) }), decision{after: 1500 * time.Millisecond}},
		"leaves another agent's work alone": {asked(phase(checkpointbackup.Checkpointing, time.Time{})), decision{}},
		"leaves the work of another node's agent alone": {
			asked(phase(checkpointbackup.ImagePushing, time.Time{}), claimed("node-b", 1)), decision{},
		},
		"leaves another agent's failure alone": {asked(phase(checkpointbackup.Failed, noon)), decision{}},
		"leaves what it has ended":             {asked(phase(checkpointbackup.Completed, noon), claimed("node-a", 1)), decision{}},
		"leaves pods of other nodes":           {asked(func(o *observed) { o.pod = nil }), decision{}},
		"leaves what is deleted":               {asked(func(o *observed) { o.backup.Deleted = true }), decision{}},
		"waits for a pod to start":             {asked(func(o *observed) { o.pod.Status.Phase = corev1.PodPending }), decision{}},
		"takes up what it was stopped at": {
			asked(phase(checkpointbackup.Checkpointed, time.Time{}), claimed("node-a", 1)), decision{claim: claim{node: "node-a", attempt: 2}},
		},
		"gives up what ends it each time": {
			asked(phase(checkpointbackup.Checkpointing, time.Time{}), claimed("node-a", 3)),
			decision{claim: claim{node: "node-a", attempt: 3}, message: "given up: the agent on node node-a was stopped during each of 3 attempts: see why it ends"},
		},
		"gives up when the pod is gone": {
			asked(phase(checkpointbackup.Checkpointing, time.Time{}), claimed("node-a", 1), func(o *observed) { o.pod = nil }),
			decision{claim: first, message: "the pod ended before its checkpoint was stored, because the agent was stopped meanwhile"},
		},
		"begins a schedule at once":        {asked(nightly), decision{claim: first}},
		"waits for a schedule's next time": {asked(nightly, phase(checkpointbackup.Completed, noon), claimed("node-a", 1)), decision{after: 14 * time.Hour}},
		"goes on with a schedule after a failure": {
			asked(nightly, phase(checkpointbackup.Failed, noon.Add(-24*time.Hour)), claimed("node-a", 1)), decision{claim: first},
		},
		"is done with a schedule whose pod it deleted": {
			asked(nightly, phase(checkpointbackup.CompletedPodDeleted, noon.Add(-24*time.Hour)), claimed("node-a", 1)), decision{},
		},
		"refuses GPUs without the plugin": {asked(func(o *observed) { o.graphics = "no plugin" }), decision{claim: first, message: "no plugin"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, plan(test.seen)) })
	}
}

func TestWhatCannotBeDoneIsRefusedByTheNameOfTheField(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*checkpointbackup.Spec)
		says   string
	}{
		"another namespace's pod": {func(s *checkpointbackup.Spec) { s.Pod.Namespace = "other" }, "spec.podRef.namespace: is other"},
		"another namespace's Secret": {func(s *checkpointbackup.Spec) {
			s.Registry.Secret = types.NamespacedName{Namespace: "kube-system", Name: "s"}
		}, "spec.registry.secretRef.namespace: is kube-system"},
		"no registry":          {func(s *checkpointbackup.Spec) { s.Registry.URL = "" }, "spec.registry.url: is not set"},
		"a wrong schedule":     {func(s *checkpointbackup.Spec) { s.Schedule = "often" }, `spec.schedule: "often" is neither immediately nor a cron expression`},
		"an unknown container": {func(s *checkpointbackup.Spec) { s.Containers[0].Name = "x" }, "spec.containers[0].name: pod bert-0 has no container x: name one of train, log"},
		"a container twice": {func(s *checkpointbackup.Spec) {
			s.Containers = append(s.Containers, checkpointbackup.Container{Name: "train", Image: "two"})
		}, "spec.containers[1].name: container train is named twice"},
		"an image twice": {func(s *checkpointbackup.Spec) {
			s.Containers = append(s.Containers, checkpointbackup.Container{Name: "log", Image: s.Containers[0].Image})
		}, "spec.containers[1].image: is that of container train as well"},
		"another registry":      {func(s *checkpointbackup.Spec) { s.Containers[0].Image = "other.example.com/a:b" }, "is in another registry than registry.example.com"},
		"a digest":              {func(s *checkpointbackup.Spec) { s.Containers[0].Image = "a@sha256:00" }, "has a digest"},
		"not an image":          {func(s *checkpointbackup.Spec) { s.Containers[0].Image = "Team/Checkpoints:one" }, "is not a valid image reference"},
		"nothing to name it by": {func(s *checkpointbackup.Spec) { s.Containers[0].Image, s.Registry.Repository = "", "" }, "and so is spec.registry.repository"},
	} {
		t.Run(name, func(t *testing.T) {
			o := asked(func(o *observed) { test.change(&o.backup.Spec) })
			d := plan(o)
			assert.NotEmpty(t, d.message)
			assert.Contains(t, d.message, test.says)
		})
	}
	o := asked(func(o *observed) { o.pod.Status.Phase = corev1.PodSucceeded })
	assert.Contains(t, plan(o).message, "pod bert-0 has ended")
}

func TestNamesOfImagesAreCompleted(t *testing.T) {
	for asked, want := range map[string]string{
		"registry.example.com/team/checkpoints:one": "registry.example.com/team/checkpoints:one",
		"registry.example.com/team/checkpoints":     "registry.example.com/team/checkpoints:20260301-120000",
		"team/checkpoints:one":                      "registry.example.com/team/checkpoints:one",
		"team/checkpoints/bert:one":                 "registry.example.com/team/checkpoints/bert:one",
		"bert:one":                                  "registry.example.com/team/checkpoints/bert:one",
		"bert":                                      "registry.example.com/team/checkpoints/bert:20260301-120000",
		"":                                          "registry.example.com/team/checkpoints:bert-0-train-20260301-120000",
	} {
		got, err := imageName(checkpointbackup.Registry{URL: "https://registry.example.com/", Repository: "team/checkpoints"},
			checkpointbackup.Container{Name: "train", Image: asked}, "bert-0", noon)
		require.NoError(t, err, asked)
		assert.Equal(t, want, got, asked)
	}
	got, err := imageName(checkpointbackup.Registry{URL: "10.0.0.7:5000"}, checkpointbackup.Container{Name: "a", Image: "10.0.0.7:5000/x"}, "p", noon)
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.7:5000/x:20260301-120000", got, "a port is no tag")
}

func TestAllContainersAreTakenWhenNoneIsNamed(t *testing.T) {
	o := asked(func(o *observed) { o.backup.Spec.Containers = nil })
	all, err := targets(o.backup, o.pod, nil, noon)
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "registry.example.com/team/checkpoints:bert-0-log-20260301-120000", all[1].image.Name())
}

func TestGPUsNeedThePluginOfCRIU(t *testing.T) {
	gpu := func(resourceName corev1.ResourceName, container int) *corev1.Pod {
		return runningPod(func(p *corev1.Pod) {
			p.Spec.Containers[container].Resources.Limits = corev1.ResourceList{resourceName: resource.MustParse("1")}
		})
	}
	b := asked().backup
	usr := t.TempDir()
	says := func(pod *corev1.Pod) string { return graphics(b, pod, usr, "node-a") }
	assert.Empty(t, says(runningPod()))
	assert.Empty(t, says(gpu("nvidia.com/gpu", 1)), "that container is not asked for")
	assert.Contains(t, says(gpu("amd.com/gpu", 0)), "node node-a has no amdgpu_plugin.so")
	assert.Contains(t, says(gpu("nvidia.com/gpu", 0)), "container train uses an NVIDIA GPU, and node node-a has no cuda_plugin.so")
	assert.Contains(t, says(gpu("nvidia.com/mig-1g.5gb", 0)), "cuda_plugin.so")
	put := func(path string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(usr, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(usr, path), nil, 0o755))
	}
	put("lib/criu/cuda_plugin.so")
	assert.Contains(t, says(gpu("nvidia.com/gpu", 0)), "has no cuda-checkpoint")
	put("local/bin/cuda-checkpoint")
	assert.Empty(t, says(gpu("nvidia.com/gpu", 0)))
}

func TestAClaimSurvivesItsWriting(t *testing.T) {
	for _, c := range []claim{{node: "node-a", attempt: 1}, {node: "a.b-c", attempt: 12}} {
		assert.Equal(t, c, readClaim(map[string]string{Claim: c.String()}))
	}
	assert.Equal(t, claim{attempt: 1}, readClaim(nil))
}

// A claim and a phase can be written by others than the agent, and the spec can change after it was checked.
func TestWhatIsTakenUpAgainIsCheckedAgain(t *testing.T) {
	d := plan(asked(phase(checkpointbackup.Checkpointing, time.Time{}), claimed("node-a", 1), func(o *observed) {
		o.backup.Spec.Pod.Namespace, o.pod.Namespace = "other", "other"
	}))
	assert.NotEmpty(t, d.message)
	assert.Contains(t, d.message, "spec.podRef.namespace: is other")
}

func TestOnlyThePodsOwnArchivesAreTouched(t *testing.T) {
	folder := t.TempDir()
	for name, of := range map[string]subject{
		"checkpoint-bert-0_team-train-2026-03-01T12:00:00Z.tar":   {"team", "bert-0", "train"},
		"checkpoint-victim_other-train-2026-03-01T12:00:00Z.tar":  {"other", "victim", "train"},
		"checkpoint-bert-0_team-a-train-2026-03-01T12:00:00Z.tar": {"team-a", "bert-0", "train"},
	} {
		archiveOf(t, filepath.Join(folder, name), of)
	}
	w := &work{agent: &Agent{Settings: Settings{Directory: folder}}, backup: asked().backup}

	own := w.own(map[string]archive{
		"train": {name: "checkpoint-bert-0_team-train-2026-03-01T12:00:00Z.tar"},
		"log":   {name: "checkpoint-victim_other-train-2026-03-01T12:00:00Z.tar"},
		"gone":  {name: "checkpoint-bert-0_team-gone-2026-03-01T12:00:00Z.tar"},
		// Its name is also that of container a-train of this namespace.
		"a-train": {name: "checkpoint-bert-0_team-a-train-2026-03-01T12:00:00Z.tar"},
	})

	assert.Equal(t, map[string]archive{"train": {name: "checkpoint-bert-0_team-train-2026-03-01T12:00:00Z.tar"}}, own)
}

// The next pod of a name, as a StatefulSet makes it, is another program.
func TestAnArchiveOfAnEarlierPodOfTheNameIsNotStored(t *testing.T) {
	folder := t.TempDir()
	pod := runningPod(func(pod *corev1.Pod) { pod.UID = "new" })
	w := &work{agent: &Agent{Settings: Settings{Directory: folder}}, backup: asked().backup, pod: pod}
	files := func() map[string]archive {
		return map[string]archive{"train": {name: "earlier.tar"}, "log": {name: "own.tar"}, "side": {name: "unknown.tar"}}
	}
	archiveOf(t, filepath.Join(folder, "earlier.tar"), subject{"team", "bert-0", "train"}, "old")
	archiveOf(t, filepath.Join(folder, "own.tar"), subject{"team", "bert-0", "log"}, "new")
	archiveOf(t, filepath.Join(folder, "unknown.tar"), subject{"team", "bert-0", "side"})

	assert.Equal(t, map[string]archive{"log": {name: "own.tar"}, "side": {name: "unknown.tar"}}, w.current(w.own(files())), "a checkpoint is taken again")
	w.files = files() // as when the pod is replaced while the kubelet takes it
	require.ErrorContains(t, w.checkArchive("train"), "the archive earlier.tar is of another pod bert-0, with the UID old in place of new")
	require.NoError(t, w.checkArchive("log"))
	require.NoError(t, w.checkArchive("side"))
}
