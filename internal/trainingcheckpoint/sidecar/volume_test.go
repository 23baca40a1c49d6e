package sidecar_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

func readFile(directory, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(directory, name))
	return string(text), err
}

// answer writes the training's answer to a request.
func answer(t *testing.T, directory, text string) {
	t.Helper()
	require.NoError(t, volume.WriteFile(directory, "checkpoint.request.done", []byte(text)))
	require.NoError(t, os.Remove(filepath.Join(directory, "checkpoint.request")))
}

func TestOnAVolumeCheckpointsAreVerifiedAndPruned(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "digits", "uid-1")
	settings := in(t, directory)
	settings.Retention = 2
	syncing := start(t, sidecar.Sync, settings)
	syncing.eventually("it runs", func(r report.Report) bool { return r.Phase == report.PhaseSyncing })
	for n := 1; n <= 4; n++ {
		take(t, directory, fmt.Sprint("checkpoint-epoch-", n), n, 12*n, epoch(n))
		got := syncing.eventually("it counts", newest(fmt.Sprint("checkpoint-epoch-", n)))
		assert.Equal(t, filepath.Join(directory, fmt.Sprint("checkpoint-epoch-", n)), got.Newest.Path)
	}
	syncing.eventually("two are kept", func(r report.Report) bool { return r.Kept == 2 })
	assert.ElementsMatch(t, []string{"checkpoint-epoch-3", "checkpoint-epoch-4"}, visible(t, directory))

	assert.Equal(t, 202, syncing.request("now"))
	take(t, directory, "checkpoint-step-50", 4, 50, epoch(5))
	answer(t, directory, `{"id": "now", "checkpoint": "checkpoint-step-50"}`)
	got := syncing.eventually("it is done", func(r report.Report) bool { return r.Request.State == report.RequestDone })
	assert.Equal(t, filepath.Join(directory, "checkpoint-step-50"), got.Request.Path)

	// One that is damaged does not count, and does not drive out a valid one.
	other := t.TempDir()
	take(t, other, "checkpoint-epoch-9", 9, 108, epoch(9))
	require.NoError(t, os.Truncate(filepath.Join(other, "checkpoint-epoch-9", "state.pt"), 1000))
	require.NoError(t, os.Rename(filepath.Join(other, "checkpoint-epoch-9"), filepath.Join(directory, "checkpoint-epoch-9")))
	got = syncing.eventually("it is known", problem(report.ReasonCorruptCheckpoint))
	assert.True(t, strings.HasSuffix(got.Newest.Path, "checkpoint-step-50"))
	assert.Contains(t, got.Problem.Message, "state.pt has 1000 bytes instead of 300000")
	last := syncing.stop()
	assert.Equal(t, report.PhaseDone, last.Phase)

	// The next attempt does not see it, and nothing is deleted.
	settings.Attempt = 1
	done := start(t, sidecar.Restore, settings).end(nil)
	assert.True(t, strings.HasSuffix(done.Restored.Path, "checkpoint-step-50"))
	require.Len(t, done.Skipped, 1)
	assert.DirExists(t, filepath.Join(directory, ".corrupt-checkpoint-epoch-9"))
	assert.NotContains(t, visible(t, directory), "checkpoint-epoch-9")

	next := start(t, sidecar.Sync, settings)
	got = next.eventually("it knows what was restored", func(r report.Report) bool { return r.Restored != nil && r.Kept > 0 })
	assert.Equal(t, done.Restored, got.Restored)
	assert.Nil(t, got.Problem)
}

// An agent was killed while it deleted a checkpoint, whose name does not come again.
func TestWhatIsLeftOfARemovalIsDeleted(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "uid-1")
	left := filepath.Join(directory, ".deleting-checkpoint-step-7")
	lay(t, left, epoch(1))
	start(t, sidecar.Sync, in(t, directory))
	require.Eventually(t, func() bool {
		_, err := os.Stat(left)
		return os.IsNotExist(err)
	}, patience, 20*time.Millisecond)
}

func TestACheckpointWithoutManifestGetsOne(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "uid-1")
	hidden := filepath.Join(directory, ".writing")
	lay(t, hidden, epoch(1))
	require.NoError(t, os.Rename(hidden, filepath.Join(directory, "checkpoint-step-500")))
	syncing := start(t, sidecar.Sync, in(t, directory))
	got := syncing.eventually("it counts", newest("checkpoint-step-500"))
	assert.EqualValues(t, 500, got.Newest.Step)
	assert.EqualValues(t, 430_100, got.Newest.SizeBytes)
	text, err := readFile(directory, "checkpoint-step-500/manifest.json")
	require.NoError(t, err)
	assert.Contains(t, text, `".metadata"`, "files with hidden names belong to it")
}

func TestOnAVolumeAnEarlierAttemptStops(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "uid-1")
	old := in(t, directory)
	old.Retention = 1
	take(t, directory, "checkpoint-epoch-1", 1, 12, epoch(1))
	earlier := start(t, sidecar.Sync, old)
	earlier.eventually("it runs", newest("checkpoint-epoch-1"))
	young := in(t, directory)
	young.Attempt, young.Retention = 1, 5
	later := start(t, sidecar.Sync, young)
	earlier.eventually("it knows", problem(report.ReasonSuperseded))
	for n := 2; n <= 4; n++ {
		take(t, directory, fmt.Sprint("checkpoint-epoch-", n), n, 12*n, epoch(n))
	}
	later.eventually("the later one decides what is kept", func(r report.Report) bool { return r.Kept == 4 })
	assert.Equal(t, report.ReasonSuperseded, earlier.stop().Problem.Reason)
	assert.Len(t, visible(t, directory), 4)
}

// small mounts a file system of few megabytes, where that is allowed.
func small(t *testing.T, megabytes int) string {
	t.Helper()
	folder := t.TempDir()
	err := syscall.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0777", megabytes))
	if err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	return folder
}

func TestAFullVolumeKeepsARestoreWaiting(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	settings := with(t, s.URL(bucket, prefix), s.Secret())
	content := files{"state.pt": noise(1, 3<<20)}
	take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, content)
	syncing := start(t, sidecar.Sync, settings)
	syncing.eventually("it is in the store", newest("checkpoint-epoch-1"))
	syncing.stop()

	folder := small(t, 4)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "other"), noise(2, 2<<20), 0o644))
	full := with(t, s.URL(bucket, prefix), s.Secret())
	full.Directory.Path = filepath.Join(folder, "uid-1")
	restoring := start(t, sidecar.Restore, full)
	got := restoring.eventually("it is known", problem(report.ReasonVolumeFull))
	assert.Contains(t, got.Problem.Message, "enlarge the volume")
	assert.Empty(t, visible(t, full.Directory.Path), "nothing that is not whole is visible")
	require.NoError(t, os.Remove(filepath.Join(folder, "other")))
	restoring.end(nil)
	same(t, full.Directory.Join("checkpoint-epoch-1"), content)
}

func TestAVolumeWithoutRoomForTheNextCheckpoint(t *testing.T) {
	folder := small(t, 4)
	settings := in(t, filepath.Join(folder, "uid-1"))
	take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, files{"state.pt": noise(1, 3<<20)})
	syncing := start(t, sidecar.Sync, settings)
	got := syncing.eventually("it is known", problem(report.ReasonVolumeFull))
	assert.True(t, strings.HasSuffix(got.Newest.Path, "checkpoint-epoch-1"))
	assert.Equal(t, 1, got.Kept)
	assert.WithinDuration(t, time.Now(), got.Problem.Since, time.Minute)
	assert.Len(t, visible(t, settings.Directory.Path), 1)
}

func TestTheDiskDoesNotFillWhileTheStoreIsAway(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	settings := with(t, s.URL(bucket, prefix), s.Secret()) // there is no bucket
	settings.Retention = 2
	syncing := start(t, sidecar.Sync, settings)
	syncing.eventually("it runs", problem(report.ReasonBucketNotFound))
	for n := 1; n <= 5; n++ {
		take(t, settings.Directory.Path, fmt.Sprint("checkpoint-epoch-", n), n, 12*n, epoch(n))
	}
	require.Eventually(t, func() bool { return len(visible(t, settings.Directory.Path)) == 2 }, patience, 20*time.Millisecond)
	assert.ElementsMatch(t, []string{"checkpoint-epoch-4", "checkpoint-epoch-5"}, visible(t, settings.Directory.Path))
	s.MakeBucket(bucket)
	syncing.eventually("what is left is sent", func(r report.Report) bool { return newest("checkpoint-epoch-5")(r) && r.Kept == 2 })
}
