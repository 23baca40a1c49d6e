package store_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// latest looks at all runs of a name: what is kept of each must be small, however many files it has.
func TestFindKeepsLittleOfManyCheckpointsWithManyFiles(t *testing.T) {
	const runs, filesOfEach = 100, 1000
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	files := make([]manifest.File, filesOfEach)
	for i := range files {
		content := fmt.Sprintf("shard %d", i)
		files[i] = manifest.File{Path: fmt.Sprintf("shards/of/the/model-%05d.bin", i), Size: int64(len(content)), SHA256: sumOf(content)}
	}
	text := 0
	for run := range runs {
		m, err := manifest.New(fmt.Sprintf("checkpoint-step-%d", run), time.Unix(int64(run), 0), files)
		require.NoError(t, err)
		text += len(m.Text)
		s.Put(bucket, fmt.Sprintf("ml/digits/uid-%d/checkpoints/checkpoint-step-%d/manifest.json", run, run), m.Text)
	}
	from := open(t, s.URL(bucket, "ml/digits"), s.Secret())
	before := heap()
	found, skipped, err := from.Find(t.Context())
	require.NoError(t, err)
	kept := heap() - before
	t.Logf("%d manifests of %d MiB leave %d KiB in memory", runs, text>>20, kept>>10)
	assert.Less(t, kept, int64(1<<20))
	assert.Empty(t, skipped)
	require.Len(t, found, runs)
	assert.Equal(t, fmt.Sprintf("checkpoint-step-%d", runs-1), found[0].Name)
	chosen, err := from.Load(t.Context(), found[0])
	require.NoError(t, err)
	assert.Len(t, chosen.Manifest.Files, filesOfEach)
	runtime.KeepAlive(found)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
