package sidecar_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

func TestAnEarlierAttemptStopsWhenALaterOneHasBegun(t *testing.T) {
	t.Parallel()
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		old := with(t, s.URL(bucket, prefix), s.Secret())
		take(t, old.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
		earlier := start(t, sidecar.Sync, old)
		earlier.eventually("epoch 1 is in the store", newest("checkpoint-epoch-1"))

		young := with(t, s.URL(bucket, prefix), s.Secret())
		young.Attempt = 1
		start(t, sidecar.Restore, young).end(nil)
		later := start(t, sidecar.Sync, young)
		earlier.eventually("the earlier one knows", problem(report.ReasonSuperseded))

		// Both trainings, one of them cut off from the cluster, go on with other results.
		take(t, old.Directory.Path, "checkpoint-epoch-2", 2, 24, epoch(50))
		take(t, young.Directory.Path, "checkpoint-epoch-2", 2, 24, epoch(2))
		later.eventually("the later one writes", newest("checkpoint-epoch-2"))
		last := earlier.stop()
		assert.Equal(t, report.ReasonSuperseded, last.Problem.Reason)
		later.stop()

		third := with(t, s.URL(bucket, prefix), s.Secret())
		start(t, sidecar.Restore, third).end(nil)
		same(t, third.Directory.Join("checkpoint-epoch-2"), epoch(2))
	})
}

func TestAValidCheckpointIsNotOverwritten(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	first := with(t, s.URL(bucket, prefix), s.Secret())
	take(t, first.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
	syncing := start(t, sidecar.Sync, first)
	syncing.eventually("epoch 1 is in the store", newest("checkpoint-epoch-1"))
	syncing.stop()

	// A program that does not resume takes the same checkpoint with other content.
	second := with(t, s.URL(bucket, prefix), s.Secret())
	second.Attempt = 1
	take(t, second.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(60))
	take(t, second.Directory.Path, "checkpoint-epoch-2", 2, 24, epoch(61))
	syncing = start(t, sidecar.Sync, second)
	got := syncing.eventually("the other one is in the store", func(r report.Report) bool { return r.Kept == 2 && len(r.Skipped) == 1 })
	assert.Contains(t, got.Skipped[0].Message, "another valid checkpoint")
	syncing.stop()
	manifest := string(s.Get(bucket, prefix+"/checkpoints/checkpoint-epoch-1/manifest.json"))
	assert.Contains(t, manifest, sumOf(epoch(1)["state.pt"]))
}

// The garbage collection of an earlier attempt races with the uploads of a later one, which has the margin against it.
func TestGarbageCollectionTakesNothingThatIsNeeded(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	settings := with(t, s.URL(bucket, prefix), s.Secret())
	settings.Retention, settings.Margin = 2, time.Nanosecond // as if every content were old
	syncing := start(t, sidecar.Sync, settings)
	collecting, stop := context.WithCancel(context.Background())
	defer stop()
	collector := open(t, s.URL(bucket, prefix), secret(t, s.Secret()))
	collected := make(chan int)
	go func() {
		times := 0
		for collecting.Err() == nil {
			if collector.Collect(collecting, 0, 5*time.Second) == nil {
				times++
			}
		}
		collected <- times
	}()
	for n := 1; n <= 8; n++ {
		take(t, settings.Directory.Path, "checkpoint-epoch-"+string(rune('0'+n)), n, 12*n, epoch(n))
		syncing.eventually("it is in the store", newest("checkpoint-epoch-"+string(rune('0'+n))))
	}
	stop()
	assert.Positive(t, <-collected)
	got := syncing.eventually("two are kept", func(r report.Report) bool { return r.Kept == 2 && len(r.Skipped) == 0 })
	assert.True(t, strings.HasSuffix(got.Newest.Path, "checkpoint-epoch-8"))
	syncing.stop()
	for _, n := range []int{1, 3, 6} { // the store's clock shows whole seconds, so that it takes one more look
		require.Eventually(t, func() bool {
			require.NoError(t, collector.Collect(context.Background(), 0, time.Nanosecond))
			return !strings.Contains(strings.Join(s.Keys(bucket, prefix), " "), sumOf(epoch(n)["state.pt"]))
		}, patience, 50*time.Millisecond, "what nothing refers to goes")
	}
	again := with(t, s.URL(bucket, prefix), s.Secret())
	start(t, sidecar.Restore, again).end(nil)
	same(t, again.Directory.Join("checkpoint-epoch-8"), epoch(8))
}

func TestRetentionSparesWhatWasRestoredAndWhatIsBeingRestored(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	first := with(t, s.URL(bucket, prefix), s.Secret())
	first.Retention = 0
	for n := 1; n <= 3; n++ {
		take(t, first.Directory.Path, "checkpoint-epoch-"+string(rune('0'+n)), n, 12*n, epoch(n))
	}
	syncing := start(t, sidecar.Sync, first)
	syncing.eventually("all are there", func(r report.Report) bool { return r.Kept == 3 })
	syncing.stop()
	s.Put(bucket, prefix+"/readers/checkpoint-epoch-2/a-reader", []byte("{}"))

	second := with(t, s.URL(bucket, prefix), s.Secret())
	second.Attempt, second.Retention = 1, 1
	start(t, sidecar.Restore, second).end(nil)
	syncing = start(t, sidecar.Sync, second)
	syncing.eventually("it runs", func(r report.Report) bool { return r.Kept > 0 })
	for n := 4; n <= 6; n++ {
		take(t, second.Directory.Path, "checkpoint-epoch-"+string(rune('0'+n)), n, 12*n, epoch(n))
		syncing.eventually("it is there", newest("checkpoint-epoch-"+string(rune('0'+n))))
	}
	syncing.eventually("three are left", func(r report.Report) bool { return r.Kept == 3 })
	keys := strings.Join(s.Keys(bucket, prefix+"/checkpoints"), " ")
	for name, there := range map[string]bool{"1": false, "2": true, "3": true, "4": false, "5": false, "6": true} {
		assert.Equal(t, there, strings.Contains(keys, "checkpoint-epoch-"+name+"/"), "%s: %s", name, keys)
	}
	require.Eventually(t, func() bool { return len(visible(t, second.Directory.Path)) == 2 }, patience, 20*time.Millisecond)
	assert.ElementsMatch(t, []string{"checkpoint-epoch-3", "checkpoint-epoch-6"}, visible(t, second.Directory.Path))
}

func TestARequestIsDoneOnceTheCheckpointIsInTheStore(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	settings := with(t, s.URL(bucket, prefix), s.Secret()) // there is no bucket yet
	directory := settings.Directory.Path
	syncing := start(t, sidecar.Sync, settings)
	syncing.eventually("it runs", problem(report.ReasonBucketNotFound))
	assert.Equal(t, 202, syncing.request("now-1"))
	assert.Equal(t, 202, syncing.request("now-1"))
	assert.Equal(t, 400, syncing.request(""))
	assert.Equal(t, 400, syncing.request("a\nb"))
	text, err := readFile(directory, "checkpoint.request")
	require.NoError(t, err)
	assert.Equal(t, "now-1\n", text)

	take(t, directory, "checkpoint-step-17", 1, 17, epoch(1))
	answer(t, directory, `{"id": "now-1", "checkpoint": "checkpoint-step-17", "epoch": 1, "step": 17}`)
	got, _ := syncing.report()
	assert.Equal(t, report.RequestPending, got.Request.State, "it is not in the store")
	s.MakeBucket(bucket)
	got = syncing.eventually("it is done", func(r report.Report) bool { return r.Request.State == report.RequestDone })
	assert.Equal(t, "s3://checkpoints/"+prefix+"/checkpoints/checkpoint-step-17", got.Request.Path)

	assert.Equal(t, 202, syncing.request("now-2"))
	answer(t, directory, `{"id": "now-2", "error": "no space left on device"}`)
	got = syncing.eventually("it has failed", func(r report.Report) bool { return r.Request.State == report.RequestFailed })
	assert.Contains(t, got.Request.Message, "no space left on device")
}
