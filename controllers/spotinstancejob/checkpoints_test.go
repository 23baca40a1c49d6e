package spotinstancejob

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestCheckpointsBySchedule(t *testing.T) {
	tests := map[string]struct {
		with  func(*world)
		want  []string
		again time.Duration
		agent string
	}{
		"the first after an interval": {
			with: func(w *world) { w.at(hour) }, want: []string{"checkpoint bert-0-pod"}, again: silentAfter, agent: "Unknown NoCheckpointYet",
		},
		"not before": {
			with: func(w *world) { w.at(hour - time.Second) }, again: time.Second, agent: "Unknown NoCheckpointYet",
		},
		"the next counts from the last request": {
			with:  func(w *world) { w.at(2*hour).backup(0, 20*time.Minute, checkpointbackup.Completed, "") },
			again: 40 * time.Minute, agent: "True CheckpointsTaken",
		},
		"none while one is in flight": {
			with: func(w *world) {
				w.at(3*hour).backup(0, 9*time.Minute, checkpointbackup.ImagePushing, "")
				w.backup(0, 2*hour, checkpointbackup.Completed, "")
			},
			again: time.Minute, agent: "True CheckpointsTaken",
		},
		"one that is stuck has failed, and the next is due": {
			with:  func(w *world) { w.at(3*hour).backup(0, hour, checkpointbackup.ImagePushing, "") },
			want:  []string{"checkpoint bert-0-pod"},
			again: silentAfter, agent: "False CheckpointFailed",
		},
		"one that failed is told, and tried again after an interval": {
			with:  func(w *world) { w.at(3*hour).backup(0, 30*time.Minute, checkpointbackup.Failed, "") },
			again: 30 * time.Minute, agent: "False CheckpointFailed",
		},
		"no agent takes one up": {
			with:  func(w *world) { w.at(3*hour).backup(0, time.Minute, "", "") },
			again: 9 * time.Minute, agent: "False CheckpointAgentSilent",
		},
		"a request that no agent took up is withdrawn, and tried again": {
			with:  func(w *world) { w.at(3*hour).backup(0, hour, "", "") },
			want:  []string{"checkpoint bert-0-pod", "prune " + name(0, 2*hour)},
			again: silentAfter, agent: "False CheckpointAgentSilent",
		},
		"the kind is not served": {
			with: func(w *world) { w.at(3 * hour).served = false }, agent: "False CheckpointAgentNotInstalled",
		},
		"a replica of several pods has none": {
			with: func(w *world) {
				w.at(3 * hour).job.Spec.JobTemplate.Spec.Parallelism = ptr.To[int32](2)
				w.job.Spec.JobTemplate.Spec.Completions = ptr.To[int32](2)
			},
			agent: "False SeveralPods",
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			w := worldOf(spotJob().Replicas(1).Checkpoints(hour))
			w.runs(0, 0, "a")
			test.with(w)
			d := plan(w.observed)
			assert.Equal(t, test.want, steps(d))
			assert.Equal(t, test.again, d.again)
			assert.Equal(t, test.agent, conditionsOf(d.status)["CheckpointAgentAvailable"])
		})
	}
}

func TestACheckpointIsAskedForInFull(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
		s.CheckpointConfig.CheckpointRepoCredentialRef = &spotv1alpha1.SecretReference{Name: "push"}
	}))
	w.runs(0, 0, "a")
	d := plan(w.at(hour).observed)
	require.Len(t, d.checkpoints, 1)
	want := checkpointbackup.Backup{
		Key: types.NamespacedName{Namespace: "default", Name: name(0, hour)}, Created: w.now,
		Labels: map[string]string{
			"training.dcnlab.com/spot-instance-job": "bert", "training.dcnlab.com/replica": "0",
			"training.dcnlab.com/spot-instance-job-uid": "uid-of-bert", "training.dcnlab.com/trained-seconds": "0",
		},
		Spec: checkpointbackup.Spec{
			Schedule: "immediately", Pod: types.NamespacedName{Namespace: "default", Name: "bert-0-pod"},
			Resource: checkpointbackup.Resource{APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: "bert-0"},
			Registry: checkpointbackup.Registry{
				URL: "registry.example.com:5000", Repository: "team/checkpoints", Secret: types.NamespacedName{Namespace: "default", Name: "push"},
			},
			Containers: []checkpointbackup.Container{{Name: "train", Image: "registry.example.com:5000/team/checkpoints:" + name(0, hour)}},
		},
	}
	assert.Empty(t, cmp.Diff(want, d.checkpoints[0]))
}

func TestTwoCheckpointsOfOneSecondHaveTwoNames(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(hour))
	w.runs(0, 0, "a")
	w.at(hour).backup(0, 0, checkpointbackup.Checkpointing, "")
	w.notice("a", 0)
	d := plan(w.observed)
	require.Equal(t, []string{"checkpoint bert-0-pod for bert-0"}, steps(d))
	assert.Equal(t, name(0, hour+time.Second), d.checkpoints[0].Key.Name)
}

func TestImageNames(t *testing.T) {
	long := strings.Repeat("j", 50)
	number := checkpointNumber("uid", builders.Noon)
	checkpoint := checkpointName(long, 15, number)
	one := imageFor("r.example.com/x", checkpoint, []string{"a"}, 0)
	two := imageFor("r.example.com/x", checkpoint, []string{"a", strings.Repeat("c", 63)}, 1)
	for _, image := range []string{one, two} {
		tag := strings.TrimPrefix(image, "r.example.com/x:")
		assert.Regexp(t, `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`, tag)
	}
	assert.NotEqual(t, one, two)
	assert.NotEqual(t, number, checkpointNumber("another uid", builders.Noon), "a job of the same name elsewhere has other tags")
	assert.Equal(t, "r/x:c-b", imageFor("r/x", "c", []string{"a", "b"}, 1))
}

func TestJobNames(t *testing.T) {
	for _, test := range []struct {
		name    string
		index   int
		attempt int32
	}{{"bert-0", 0, 0}, {"bert-15-r3", 15, 3}} {
		assert.Equal(t, test.name, jobName("bert", test.index, test.attempt))
		index, attempt, ok := parseJobName("bert", test.name)
		assert.True(t, ok)
		assert.Equal(t, test.index, index)
		assert.Equal(t, test.attempt, attempt)
	}
	for _, other := range []string{"bert", "bertha-0", "bert-x", "bert-0-rx", "bert--1"} {
		_, _, ok := parseJobName("bert", other)
		assert.False(t, ok, other)
	}
}

func TestPruning(t *testing.T) {
	w := worldOf(spotJob().Replicas(1).Checkpoints(hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) { s.CheckpointConfig.Retention = 2 }))
	w.runs(0, 0, "a")
	w.at(10 * hour)
	for i, phase := range []checkpointbackup.Phase{
		checkpointbackup.Checkpointing, checkpointbackup.Failed, checkpointbackup.Completed, checkpointbackup.Failed, checkpointbackup.Completed,
		checkpointbackup.Completed, checkpointbackup.Completed,
	} {
		w.backup(0, time.Minute+time.Duration(i)*hour, phase, "")
	}
	at := func(i int) string { return "prune " + name(0, 10*hour-time.Minute-time.Duration(i)*hour) }
	assert.Equal(t, []string{at(3), at(5), at(6)}, steps(plan(w.observed)),
		"two good ones stay, what is in flight, and the failure since the newest good one")

	// All but one have failed: the good one stays however old it is.
	w.backups = nil
	for i := range 5 {
		w.backup(0, time.Minute+time.Duration(i)*hour, checkpointbackup.Failed, "")
	}
	w.backup(0, 9*hour, checkpointbackup.Completed, "")
	assert.Equal(t, []string{at(2), at(3), at(4)}, steps(plan(w.observed)))
}

func TestImagesOfACheckpoint(t *testing.T) {
	w := worldOf(spotJob().Checkpoints(hour).Template(func(s *batchv1.JobSpec) {
		s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "log"})
	}))
	asked := []checkpointbackup.Container{{Name: "train", Image: "r/x:1-train"}, {Name: "log", Image: "r/x:1-log"}}
	tests := map[string]struct {
		phase  checkpointbackup.Phase
		images []checkpointbackup.Container
		want   map[string]string
	}{
		"as the agent names them": {
			checkpointbackup.Completed, []checkpointbackup.Container{{Name: "train", Image: "r/x@sha256:1"}, {Name: "log", Image: "r/x@sha256:2"}},
			map[string]string{"train": "r/x@sha256:1", "log": "r/x@sha256:2"},
		},
		"as they were asked for": {checkpointbackup.CompletedPodDeleted, nil, map[string]string{"train": "r/x:1-train", "log": "r/x:1-log"}},
		"an error, and all the same all images": {
			checkpointbackup.CompletedWithError, asked, map[string]string{"train": "r/x:1-train", "log": "r/x:1-log"},
		},
		"an error, and one image is missing": {checkpointbackup.CompletedWithError, asked[:1], nil},
		"a failure":                          {checkpointbackup.Failed, asked, nil},
		"not yet":                            {checkpointbackup.ImagePushed, asked, nil},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			backup := checkpointbackup.Backup{
				Spec: checkpointbackup.Spec{Containers: asked}, Status: checkpointbackup.Status{Phase: test.phase, Images: test.images},
			}
			assert.Equal(t, test.want, w.images(backup))
		})
	}
}

func TestTheStatusNamesTheNewestCheckpoint(t *testing.T) {
	w := worldOf(spotJob().Checkpoints(hour))
	w.runs(0, 0, "a")
	w.runs(1, 0, "b")
	w.at(2*hour).backup(0, 20*time.Minute, checkpointbackup.Completed, "")
	w.backup(1, 10*time.Minute, checkpointbackup.Completed, "")
	status := plan(w.observed).status
	repo := "registry.example.com:5000/team/checkpoints:"
	assert.Equal(t, repo+name(1, 110*time.Minute), status.LastCheckpointImage)
	assert.Equal(t, builders.Noon.Add(110*time.Minute+5*time.Second), status.LastCheckpointTime.Time)
	assert.Equal(t, repo+name(0, 100*time.Minute), status.JobStatuses[0].LastCheckpointImage)

	w.job.Status, w.backups = status, nil
	gone := plan(w.observed)
	assert.Empty(t, cmp.Diff(status, gone.status), "what was complete stays known when its CheckpointBackup is gone")
	assert.Equal(t, origin{name: name(1, 110*time.Minute), images: map[string]string{"train": repo + name(1, 110*time.Minute)}}, w.newest(nil))
}

func TestWhatWasAskedForCountsBeforeTheCacheShowsIt(t *testing.T) {
	var a requestedCheckpoints
	job := types.NamespacedName{Namespace: "default", Name: "bert"}
	backup := checkpointbackup.Backup{Key: types.NamespacedName{Name: "x"}, Created: builders.Noon}
	a.add(job, backup)
	assert.Len(t, a.merge(job, nil, builders.Noon.Add(time.Second)), 1)
	assert.Len(t, a.merge(job, []checkpointbackup.Backup{backup}, builders.Noon.Add(time.Second)), 1, "once the cache shows it")
	assert.Empty(t, a.merge(job, nil, builders.Noon.Add(time.Second)), "that it is gone again is believed")
	a.add(job, backup)
	assert.Empty(t, a.merge(job, nil, builders.Noon.Add(time.Minute)), "one that never came is forgotten")
}
