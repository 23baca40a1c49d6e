package sidecar_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// An object store with the checkpoints of another job, whose newest is damaged, and one that was copied there.
func otherJob(t *testing.T) (*stores.S3, string) {
	t.Helper()
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	settings := with(t, s.URL(bucket, "team/ml/other/uid-7"), s.Secret())
	for n := 1; n <= 3; n++ {
		take(t, settings.Directory.Path, "checkpoint-epoch-"+string(rune('0'+n)), n, 12*n, epoch(n))
	}
	syncing := start(t, sidecar.Sync, settings)
	syncing.eventually("all are there", func(r report.Report) bool { return r.Kept == 3 })
	syncing.stop()
	s.Put(bucket, "team/ml/other/uid-7/blobs/sha256/"+sumOf(epoch(3)["state.pt"]), noise(5, 300_000))

	folder := t.TempDir()
	take(t, folder, "checkpoint-epoch-10", 10, 120, files{"state.pt": noise(10, 5000), "a/b.bin": noise(11, 10)})
	for _, name := range []string{"state.pt", "a/b.bin", "manifest.json"} {
		content, err := os.ReadFile(filepath.Join(folder, "checkpoint-epoch-10", name))
		require.NoError(t, err)
		s.Put(bucket, "copied/checkpoint-epoch-10/"+name, content)
	}
	return s, "team/ml/other"
}

func TestResumeFromAStore(t *testing.T) {
	s, other := otherJob(t)
	for name, test := range map[string]struct {
		from, want string
		optional   bool
		skipped    int
		err        error
	}{
		"one checkpoint":            {from: other + "/uid-7/checkpoints/checkpoint-epoch-1", want: "checkpoint-epoch-1"},
		"the checkpoints of a job":  {from: other + "/uid-7", want: "checkpoint-epoch-2", skipped: 1},
		"all jobs of the name":      {from: other, want: "checkpoint-epoch-2", skipped: 1},
		"latest":                    {from: other, optional: true, want: "checkpoint-epoch-2", skipped: 1},
		"a copy":                    {from: "copied/checkpoint-epoch-10", want: "checkpoint-epoch-10"},
		"a folder of copies":        {from: "copied", want: "checkpoint-epoch-10"},
		"a damaged one":             {from: other + "/uid-7/checkpoints/checkpoint-epoch-3", skipped: 1, err: sidecar.ErrNotFound},
		"nothing":                   {from: "nowhere", err: sidecar.ErrNotFound},
		"latest where nothing is":   {from: "nowhere", optional: true},
		"too many levels above it":  {from: "team", err: sidecar.ErrNotFound},
		"a name that only looks so": {from: "copied/checkpoint-epoch-1", err: sidecar.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			settings := with(t, s.URL(bucket, prefix), s.Secret())
			settings.ResumeStore = open(t, s.URL(bucket, test.from), secret(t, s.Secret()))
			settings.ResumeOptional = test.optional
			done := start(t, sidecar.Restore, settings).end(test.err)
			assert.Equal(t, report.PhaseDone, done.Phase)
			assert.Len(t, done.Skipped, test.skipped)
			resume := filepath.Join(settings.Directory.Path, ".resume")
			if test.want == "" {
				assert.Nil(t, done.Restored)
				assert.NoDirExists(t, filepath.Join(resume, "checkpoint-epoch-3"))
				if test.err != nil {
					assert.Equal(t, report.ReasonCheckpointNotFound, done.Problem.Reason)
					assert.Contains(t, done.Problem.Message, test.from)
				}
				return
			}
			require.NotNil(t, done.Restored)
			assert.True(t, strings.HasSuffix(done.Restored.Path, "/"+test.want), done.Restored.Path)
			assert.Equal(t, []string{test.want}, visible(t, resume))
			assert.Empty(t, visible(t, settings.Directory.Path), "it is not one of the job's own")
		})
	}
}

func TestTheJobsOwnCheckpointGoesBeforeResumeFrom(t *testing.T) {
	s, other := otherJob(t)
	settings := with(t, s.URL(bucket, other+"/uid-7"), s.Secret())
	settings.ResumeStore = open(t, s.URL(bucket, "copied"), secret(t, s.Secret()))
	done := start(t, sidecar.Restore, settings).end(nil)
	assert.True(t, strings.HasSuffix(done.Restored.Path, "uid-7/checkpoints/checkpoint-epoch-2"), done.Restored.Path)
	assert.NoDirExists(t, settings.Directory.Join(".resume"))
	assert.NotContains(t, strings.Join(s.Keys(bucket, ""), " "), "/readers/", "no mark of a reader is left")
}

func TestResumeFromAPath(t *testing.T) {
	folder := t.TempDir()
	take(t, filepath.Join(folder, "other", "uid-7"), "checkpoint-epoch-1", 1, 12, epoch(1))
	take(t, filepath.Join(folder, "other", "uid-7"), "checkpoint-epoch-2", 2, 24, epoch(2))
	damaged := filepath.Join(folder, "other", "uid-7", "checkpoint-epoch-2")
	require.NoError(t, os.WriteFile(filepath.Join(damaged, "state.pt"), noise(3, 300_000), 0o644))
	for name, test := range map[string]struct {
		from, want string
		optional   bool
		err        error
	}{
		"one checkpoint": {from: "other/uid-7/checkpoint-epoch-1", want: "other/uid-7/checkpoint-epoch-1"},
		"a directory":    {from: "other", want: "other/uid-7/checkpoint-epoch-1"},
		"a damaged one":  {from: "other/uid-7/checkpoint-epoch-2", err: sidecar.ErrNotFound},
		"nothing":        {from: "nowhere", err: sidecar.ErrNotFound},
		"latest":         {from: "nowhere", optional: true},
	} {
		t.Run(name, func(t *testing.T) {
			settings := in(t, filepath.Join(t.TempDir(), "uid-1"))
			settings.ResumePath, settings.ResumeOptional = filepath.Join(folder, test.from), test.optional
			done := start(t, sidecar.Restore, settings).end(test.err)
			assert.DirExists(t, damaged, "what belongs to others is not touched")
			if test.want == "" {
				assert.Nil(t, done.Restored)
				return
			}
			require.NotNil(t, done.Restored)
			assert.Equal(t, filepath.Join(folder, test.want), done.Restored.Path)
		})
	}
}

// Copies lie where a user has put them: also where the agent would keep a job's own, and at the top of a bucket.
func TestResumeFromACopyWhereverItLies(t *testing.T) {
	stores.OnEach(t, func(t *testing.T, s stores.Store) {
		s.MakeBucket(bucket)
		s.MakeBucket("top")
		folder := t.TempDir()
		content := files{"state.pt": noise(10, 5000), "a/empty": nil}
		take(t, folder, "checkpoint-epoch-10", 10, 120, content)
		for name, lies := range map[string]struct{ bucket, folder, from, path string }{
			"under a folder checkpoints": {bucket, "run/checkpoints/checkpoint-epoch-10/", "run", "checkpoint-epoch-10"},
			"at the top of the bucket":   {"top", "", "", "checkpoint-step-120"},
			"under a name of its own":    {bucket, "best-model/", "best-model", "checkpoint-step-120"},
		} {
			t.Run(name, func(t *testing.T) {
				for _, file := range []string{"state.pt", "a/empty", "manifest.json"} {
					text, err := os.ReadFile(filepath.Join(folder, "checkpoint-epoch-10", file))
					require.NoError(t, err)
					s.Put(lies.bucket, lies.folder+file, text)
				}
				settings := with(t, s.URL(bucket, prefix), s.Secret())
				settings.ResumeStore = open(t, s.URL(lies.bucket, lies.from), secret(t, s.Secret()))
				done := start(t, sidecar.Restore, settings).end(nil)
				require.NotNil(t, done.Restored, "%+v", done)
				assert.EqualValues(t, 5000, done.Restored.SizeBytes)
				resume := settings.Directory.Join(".resume")
				assert.Equal(t, []string{lies.path}, visible(t, resume))
				same(t, filepath.Join(resume, lies.path), content)
			})
		}
	})
}
