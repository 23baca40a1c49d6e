package sidecar_test

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// what a training of three epochs leaves: a state that changes, and a vocabulary that does not.
func epoch(n int) files {
	return files{
		"state.pt": noise(uint64(n), 300_000), "shards/0.bin": noise(uint64(1000+n), 50_000),
		".metadata": noise(uint64(2000+n), 100), "vocabulary.json": noise(7, 80_000), "empty": nil,
	}
}

func TestCheckpointsReachTheStoreAndComeBack(t *testing.T) {
	t.Parallel()
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		settings := with(t, s.URL(bucket, prefix), s.Secret())
		settings.Retention = 2
		directory := settings.Directory.Path
		syncing := start(t, sidecar.Sync, settings)
		syncing.eventually("the agent serves its report", func(r report.Report) bool { return r.Phase == report.PhaseSyncing && r.Problem == nil })

		take(t, directory, "checkpoint-epoch-1", 1, 12, epoch(1))
		syncing.eventually("epoch 1 is in the store", newest("checkpoint-epoch-1"))
		take(t, directory, "checkpoint-epoch-2", 2, 24, epoch(2))
		got := syncing.eventually("epoch 2 is in the store", newest("checkpoint-epoch-2"))
		assert.Equal(t, 2, got.Kept)
		assert.EqualValues(t, 80_000, got.ReusedBytes, "the vocabulary and the empty file are there already")
		take(t, directory, "checkpoint-epoch-3", 3, 36, epoch(3))
		got = syncing.eventually("epoch 3 is in the store, and epoch 1 is not any more", func(r report.Report) bool {
			return newest("checkpoint-epoch-3")(r) && r.Kept == 2
		})
		assert.EqualValues(t, 3, got.Newest.Epoch)
		assert.EqualValues(t, 36, got.Newest.Step)
		assert.EqualValues(t, 430_100, got.Newest.SizeBytes)
		assert.NotContains(t, strings.Join(s.Keys(bucket, prefix), " "), "checkpoint-epoch-1/")

		// The last one is taken while the pod ends.
		take(t, directory, "checkpoint-step-40", 3, 40, epoch(4))
		last := syncing.stop()
		assert.Equal(t, report.PhaseDone, last.Phase)
		assert.True(t, newest("checkpoint-step-40")(last), "%+v", last)

		again := with(t, s.URL(bucket, prefix), s.Secret())
		done := start(t, sidecar.Restore, again).end(nil)
		require.NotNil(t, done.Restored)
		assert.Equal(t, last.Newest.Path, done.Restored.Path)
		same(t, again.Directory.Join("checkpoint-step-40"), epoch(4))
		assert.Equal(t, []string{"checkpoint-step-40"}, visible(t, again.Directory.Path))
	})
}

func TestDamagedCheckpointsInTheStoreAreSkippedAndReplaced(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(s stores.Store, key string){
		"corrupt": func(s stores.Store, key string) {
			content := bytes.Clone(s.Get(bucket, key))
			content[len(content)/2] ^= 1
			s.Put(bucket, key, content)
		},
		"truncated": func(s stores.Store, key string) { s.Put(bucket, key, s.Get(bucket, key)[:1000]) },
		"missing":   func(s stores.Store, key string) { s.Remove(bucket, key) },
	} {
		t.Run(name, func(t *testing.T) {
			stores.OnEach(t, func(t *testing.T, s stores.Store) {
				s.MakeBucket(bucket)
				settings := with(t, s.URL(bucket, prefix), s.Secret())
				take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
				take(t, settings.Directory.Path, "checkpoint-epoch-2", 2, 24, epoch(2))
				syncing := start(t, sidecar.Sync, settings)
				syncing.eventually("both are in the store", func(r report.Report) bool { return r.Kept == 2 })
				syncing.stop()
				damage(s, prefix+"/blobs/sha256/"+sumOf(epoch(2)["state.pt"]))

				again := with(t, s.URL(bucket, prefix), s.Secret())
				again.Attempt = 1
				done := start(t, sidecar.Restore, again).end(nil)
				require.NotNil(t, done.Restored)
				assert.True(t, strings.HasSuffix(done.Restored.Path, "/checkpoint-epoch-1"), done.Restored.Path)
				require.Len(t, done.Skipped, 1)
				assert.Contains(t, done.Skipped[0].Path, "checkpoint-epoch-2")
				assert.Contains(t, done.Skipped[0].Message, "state.pt")
				same(t, again.Directory.Join("checkpoint-epoch-1"), epoch(1))

				// The training goes on from epoch 1 and takes the same checkpoint again.
				take(t, again.Directory.Path, "checkpoint-epoch-2", 2, 24, epoch(2))
				syncing = start(t, sidecar.Sync, again)
				syncing.eventually("it is whole again", func(r report.Report) bool { return newest("checkpoint-epoch-2")(r) && r.Kept == 2 })
				syncing.stop()
				third := with(t, s.URL(bucket, prefix), s.Secret())
				done = start(t, sidecar.Restore, third).end(nil)
				assert.True(t, strings.HasSuffix(done.Restored.Path, "/checkpoint-epoch-2"), done.Restored.Path)
				same(t, third.Directory.Join("checkpoint-epoch-2"), epoch(2))
			})
		})
	}
}

func TestABucketThatGoesAndComesBack(t *testing.T) {
	t.Parallel()
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		settings := with(t, s.URL(bucket, prefix), s.Secret())
		take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
		syncing := start(t, sidecar.Sync, settings)
		got := syncing.eventually("there is no bucket yet", problem(report.ReasonBucketNotFound))
		assert.Contains(t, got.Problem.Message, bucket)
		assert.Contains(t, got.Problem.Message, "create it")
		s.MakeBucket(bucket)
		syncing.eventually("it is sent as soon as there is one", newest("checkpoint-epoch-1"))
		if _, azure := s.(*stores.Azure); azure { // which gives the name of a removed container free much later
			return
		}
		s.RemoveBucket(bucket)
		syncing.eventually("the bucket has gone", problem(report.ReasonBucketNotFound))
		s.MakeBucket(bucket)
		syncing.eventually("what the volume has is sent again", newest("checkpoint-epoch-1"))
		same(t, settings.Directory.Join("checkpoint-epoch-1"), epoch(1))
	})
}

func TestAStoreThatIsDownAndBack(t *testing.T) {
	t.Parallel()
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		settings := with(t, s.URL(bucket, prefix), s.Secret())
		take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
		syncing := start(t, sidecar.Sync, settings)
		syncing.eventually("epoch 1 is in the store", newest("checkpoint-epoch-1"))
		s.Stop()
		take(t, settings.Directory.Path, "checkpoint-epoch-2", 2, 24, epoch(2))
		got := syncing.eventually("the store does not answer", problem(report.ReasonStorageUnreachable))
		assert.NotNil(t, got.Newest, "what is known stays")
		assert.Contains(t, got.Problem.Message, "127.0.0.1")

		// A restore meanwhile waits, says why, and goes on by itself.
		waiting := with(t, s.URL(bucket, prefix), s.Secret())
		restoring := start(t, sidecar.Restore, waiting)
		restoring.eventually("the restore waits", problem(report.ReasonStorageUnreachable))
		s.Start()
		syncing.eventually("epoch 2 is in the store", newest("checkpoint-epoch-2"))
		done := restoring.end(nil)
		require.NotNil(t, done.Restored)
		assert.Nil(t, done.Problem)
	})
}

func TestCredentialsThatAppearLater(t *testing.T) {
	t.Parallel()
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		settings := with(t, s.URL(bucket, prefix), nil)
		folder := t.TempDir() // an optional Secret that does not exist
		settings.Store = open(t, s.URL(bucket, prefix), folder)
		take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
		syncing := start(t, sidecar.Sync, settings)
		got := syncing.eventually("there are none", problem(report.ReasonCredentialsMissing))
		for key := range s.Secret() {
			assert.Contains(t, got.Problem.Message, key)
		}
		if _, google := s.(*stores.GCS); !google { // whose server takes any
			wrong := map[string]string{}
			for key, value := range s.Secret() {
				wrong[key] = strings.ReplaceAll(strings.ReplaceAll(value, "01", "10"), "Eby8", "Fby8")
			}
			mount(t, folder, wrong)
			got = syncing.eventually("they are wrong", problem(report.ReasonAccessDenied))
			assertNoSecret(t, got, syncing, wrong)
		}
		mount(t, folder, s.Secret())
		got = syncing.eventually("they are right", newest("checkpoint-epoch-1"))
		assertNoSecret(t, got, syncing, s.Secret())
	})
}

func assertNoSecret(t *testing.T, r report.Report, syncing *running, values map[string]string) {
	t.Helper()
	for key, value := range values {
		if key == "AWS_ACCESS_KEY_ID" { // which names a user, and is no secret
			continue
		}
		assert.NotContains(t, string(sidecar.Message(r)), value)
		assert.NotContains(t, syncing.logs.String(), value)
	}
}

func TestARestoreWaitsForCredentials(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	folder := t.TempDir()
	settings := with(t, s.URL(bucket, prefix), nil)
	settings.Store = open(t, s.URL(bucket, prefix), folder)
	restoring := start(t, sidecar.Restore, settings)
	got := restoring.eventually("it says what it lacks", problem(report.ReasonCredentialsMissing))
	assert.Equal(t, report.PhaseRestoring, got.Phase)
	mount(t, folder, s.Secret())
	assert.Nil(t, restoring.end(nil).Restored, "the job has no checkpoint yet")
}

func proxied(t *testing.T, s *stores.S3) (*stores.Proxy, sidecar.Settings) {
	t.Helper()
	endpoint, err := url.Parse(s.Endpoint)
	require.NoError(t, err)
	proxy := stores.NewProxy(t, endpoint.Host)
	settings := with(t, s.URLVia("http://"+proxy.Address, bucket, prefix), s.Secret())
	settings.Store.StallAfter = time.Second
	return proxy, settings
}

func TestASlowNetworkTakesItsTime(t *testing.T) {
	t.Parallel()
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	proxy, settings := proxied(t, s)
	proxy.Limit(400_000) // 1.2 MB take longer than a store may be silent
	content := files{"state.pt": noise(1, 1_200_000)}
	take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, content)
	syncing := start(t, sidecar.Sync, settings)
	began := time.Now()
	got := syncing.eventually("it arrives", newest("checkpoint-epoch-1"))
	assert.Greater(t, time.Since(began), 2*time.Second)
	assert.EqualValues(t, 1_200_000, got.UploadedBytes, "at the first attempt")
	syncing.stop()

	again := settings
	again.Directory.Path = filepath.Join(t.TempDir(), "uid-1")
	start(t, sidecar.Restore, again).end(nil)
	same(t, again.Directory.Join("checkpoint-epoch-1"), content)
}

func TestANetworkThatMovesNothing(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	proxy, settings := proxied(t, s)
	proxy.Silence(true)
	take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, epoch(1))
	syncing := start(t, sidecar.Sync, settings)
	syncing.eventually("it is known", problem(report.ReasonStorageUnreachable))
	proxy.Silence(false)
	syncing.eventually("it goes on", newest("checkpoint-epoch-1"))
}

func TestAStoreThatGoesInTheMiddleOfAnUpload(t *testing.T) {
	t.Parallel()
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	proxy, settings := proxied(t, s)
	settings.Store.StallAfter = 30 * time.Second // a busy machine moves nothing for some seconds, too
	proxy.Limit(20 << 20)
	content := files{"state.pt": noise(1, 60<<20), "optimizer.pt": noise(2, 10<<20)}
	take(t, settings.Directory.Path, "checkpoint-epoch-1", 1, 12, content)
	syncing := start(t, sidecar.Sync, settings)
	require.Eventually(t, func() bool { return proxy.Moved() > 12<<20 }, patience, time.Millisecond)
	s.Stop()
	proxy.Cut()
	got := syncing.eventually("it is known", problem(report.ReasonStorageUnreachable))
	assert.Nil(t, got.Newest)
	assert.NotContains(t, strings.Join(s.Keys(bucket, prefix), " "), "manifest.json", "nothing exists that is not whole")
	proxy.Limit(0)
	s.Start()
	syncing.eventually("it is sent when the store is back", newest("checkpoint-epoch-1"))
	syncing.stop()
	again := with(t, s.URL(bucket, prefix), s.Secret())
	start(t, sidecar.Restore, again).end(nil)
	same(t, again.Directory.Join("checkpoint-epoch-1"), content)
}

func TestADamagedCheckpointOfTheTrainingDoesNotReachTheStore(t *testing.T) {
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		settings := with(t, s.URL(bucket, prefix), s.Secret())
		directory := settings.Directory.Path
		take(t, directory, "checkpoint-epoch-1", 1, 12, epoch(1))
		syncing := start(t, sidecar.Sync, settings)
		syncing.eventually("epoch 1 is in the store", newest("checkpoint-epoch-1"))

		// Its size is right, so that only its hash shows it.
		take(t, filepath.Dir(directory), "checkpoint-epoch-2", 2, 24, epoch(2))
		damaged := filepath.Join(filepath.Dir(directory), "checkpoint-epoch-2")
		require.NoError(t, os.WriteFile(filepath.Join(damaged, "state.pt"), noise(99, 300_000), 0o644))
		require.NoError(t, os.Rename(damaged, filepath.Join(directory, "checkpoint-epoch-2")))
		got := syncing.eventually("it is known", problem(report.ReasonCorruptCheckpoint))
		assert.Contains(t, got.Problem.Message, "state.pt")
		assert.True(t, strings.HasSuffix(got.Newest.Path, "/checkpoint-epoch-1"))
		keys := strings.Join(s.Keys(bucket, prefix), " ")
		assert.NotContains(t, keys, "checkpoint-epoch-2")
		assert.NotContains(t, keys, sumOf(epoch(2)["state.pt"]), "a content never lies under another's name")

		take(t, directory, "checkpoint-epoch-3", 3, 36, epoch(3))
		syncing.eventually("the next one is right", newest("checkpoint-epoch-3"))
	})
}
