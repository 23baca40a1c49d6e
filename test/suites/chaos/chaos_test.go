package chaos

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
)

// faultsLast is how long faults are injected for each seed.
const faultsLast = 15 * time.Second

// regressions are seeds that found a fault.
var regressions = []uint64{}

// TestWhateverHappensEverythingComesToItsEnd runs one seed and those that found faults.
//
//	CHAOS_SEEDS   the number of seeds, or a list of them with commas, e.g. 500 or 17,18; several seeds find more together
//	CHAOS_WORLDS  the number of clusters beside each other that share the seeds. Default 1.
//	CHAOS_CLOCK   jumps: that of the manager does, for which all is compiled again, with another package time. Default: only those of nodes do.
func TestWhateverHappensEverythingComesToItsEnd(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	seeds := seeds(t)
	worlds, err := strconv.Atoi(max(os.Getenv("CHAOS_WORLDS"), "1"))
	require.NoError(t, err, "CHAOS_WORLDS")
	kinds := slices.Concat(proxyFaults, nodeFaults, userFaults)
	if wantsClock() {
		kinds = append(kinds, clockJumps)
	}
	faults, checks := newTally(kinds...), newTally(invariants...)

	t.Run("worlds", func(t *testing.T) {
		var next atomic.Int64
		for range min(worlds, len(seeds)) {
			t.Run("world", func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, faults, checks)
				for {
					i := int(next.Add(1)) - 1
					if i >= len(seeds) || t.Context().Err() != nil {
						return
					}
					w.live(seeds[i])
				}
			})
		}
	})
	t.Logf("%d seeds; faults injected:\n%s", len(seeds), faults)
	t.Logf("checks made:\n%s", checks)
	if len(seeds) >= 50 {
		assert.Empty(t, faults.never(), "faults that were never injected")
		assert.Empty(t, checks.never(), "checks that were never made")
	}
}

func seeds(t *testing.T) []uint64 {
	t.Helper()
	asked := os.Getenv("CHAOS_SEEDS")
	if asked == "" {
		return append([]uint64{1}, regressions...)
	}
	if count, err := strconv.ParseUint(asked, 10, 64); err == nil {
		first := uint64(time.Now().Unix())
		var all []uint64
		for i := range count {
			all = append(all, first+i)
		}
		return append(all, regressions...)
	}
	var all []uint64
	for text := range strings.SplitSeq(strings.TrimSuffix(asked, ","), ",") {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "CHAOS_SEEDS")
		all = append(all, seed)
	}
	return all
}

// live runs one seed.
func (w *world) live(seed uint64) {
	l := newWorkload(w, seed)
	began := time.Now()
	require.NoError(w.t, l.create(w.t.Context()))
	w.proxy.begin(seed)
	w.nodes.begin(seed)
	l.live(w.t.Context(), faultsLast)
	left := l.random.Float64() < 0.2
	if left {
		l.leave(w.t.Context())
	}
	w.nodes.end()
	w.proxy.end()
	l.jump(0)
	if left {
		l.awaitNothing()
		l.watcher.keptQuota(l.queue())
		l.logs()
	} else {
		l.judge(w.t.Context())
	}
	if wrong := w.noted(); len(wrong) > 0 {
		w.t.Errorf("seed %d: to run it again: CHAOS_SEEDS=%d, make chaos\n%s\n%s", seed, seed, strings.Join(wrong, "\n"), w.keepLogs(seed))
	}
	w.t.Logf("seed %d: %s", seed, time.Since(began).Round(time.Second))
}

// keepLogs copies the logs of the managers to where they stay.
func (w *world) keepLogs(seed uint64) string {
	folder, err := os.MkdirTemp("", "chaos-"+strconv.FormatUint(seed, 10)+"-")
	if err == nil {
		err = os.CopyFS(folder, os.DirFS(w.folder))
	}
	if err != nil {
		return err.Error()
	}
	return "logs: " + folder
}
