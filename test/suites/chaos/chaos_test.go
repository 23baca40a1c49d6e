package chaos

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// faultsLast is how long faults are injected for each seed.
const faultsLast = 15 * time.Second

var (
	// always are the seeds of make test: there is a job whose pods no quota allows, and a node stays dead.
	always = []uint64{27}
	// regressions are seeds that found a fault.
	regressions = []uint64{}
)

// TestWhateverHappensEverythingComesToItsEnd runs a seed that has much to tell, and those that found faults.
//
//	CHAOS_SEEDS   the number of seeds, or a list of them with commas, e.g. 500 or 17,18; several seeds find more together
//	CHAOS_WORLDS  the number of clusters beside each other that share the seeds. Default 1.
//	CHAOS_CLOCK   jumps: that of the manager does, for which all is compiled again, with another package time. Default: only those of nodes do.
func TestWhateverHappensEverythingComesToItsEnd(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	seeds := seeds(t)
	worlds, err := strconv.Atoi(cmp.Or(os.Getenv("CHAOS_WORLDS"), "1"))
	require.NoError(t, err, "CHAOS_WORLDS")
	kinds := slices.Concat(proxyFaults, nodeFaults, userFaults)
	if wantsClock() {
		kinds = append(kinds, clockJumps)
	}
	faults, checks := newTally(kinds...), newTally(invariants...)
	began := time.Now()

	t.Run("worlds", func(t *testing.T) {
		var taken atomic.Int64
		next := func() (uint64, bool) {
			i := int(taken.Add(1)) - 1
			if i >= len(seeds) || t.Context().Err() != nil {
				return 0, false
			}
			return seeds[i], true
		}
		for range min(worlds, len(seeds)) {
			t.Run("of", func(t *testing.T) {
				t.Parallel()
				seed, more := next()
				for more { // what a seed left that failed must not fail others
					more = false
					t.Run("world", func(t *testing.T) { seed, more = newWorld(t, faults, checks).liveOn(seed, next) })
				}
			})
		}
	})
	lived := time.Since(began)
	t.Logf("%d seeds in %s, %s for each", len(seeds), lived.Round(time.Second), (lived / time.Duration(len(seeds))).Round(time.Second))
	t.Logf("faults injected:\n%s", faults)
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
		return append(always, regressions...)
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

// liveOn runs a seed and those that follow, until one fails: then the next one needs another world.
func (w *world) liveOn(seed uint64, next func() (uint64, bool)) (following uint64, more bool) {
	for more = true; more && !w.t.Failed(); seed, more = next() {
		w.live(seed)
	}
	w.leaving.Wait()
	w.logs()
	w.tell("after the last seed")
	return seed, more
}

// live runs one seed.
func (w *world) live(seed uint64) {
	l := newWorkload(w, seed)
	began := time.Now()
	require.NoError(w.t, l.create(w.t.Context()))
	w.proxy.begin(seed)
	w.nodes.begin(seed, l.options)
	l.live(w.t.Context(), faultsLast)
	if l.leaves {
		l.leave(w.t.Context())
	}
	w.nodes.end()
	w.proxy.end()
	l.jump(0)
	l.took("faults")
	if l.leaves {
		w.nodes.revive()
		l.watcher.keptQuota(l.queue())
	} else {
		l.verdict(w.t.Context())
		l.removeAll(w.t.Context())
	}
	w.leaving.Go(l.awaitNothing) // while the next seed lives
	l.logs()
	w.tell(fmt.Sprintf("seed %d: to run it again: CHAOS_SEEDS=%d, make chaos", seed, seed))
	w.t.Logf("seed %d: %s (%s) %+v", seed, time.Since(began).Round(time.Second), strings.Join(l.laps, ", "), l.options)
}

// tell fails the test if something was noted.
func (w *world) tell(of string) {
	if wrong := w.noted(); len(wrong) > 0 {
		w.t.Errorf("%s\n%s\n%s", of, strings.Join(wrong, "\n"), w.keepLogs(of))
	}
}

// notInNames are characters that do not belong into the name of a folder.
var notInNames = regexp.MustCompile("[^0-9A-Za-z]+")

// keepLogs copies the logs of the managers and of Kubernetes to where those of other tests are kept.
func (w *world) keepLogs(of any) string {
	parent := filepath.Join(apiserver.Root(), ".localcluster", "logs")
	err := os.MkdirAll(parent, 0o755)
	folder := ""
	if err == nil {
		name := notInNames.ReplaceAllString(fmt.Sprint(of), "-")
		folder, err = os.MkdirTemp(parent, "chaos-"+name[:min(len(name), 30)]+"-")
	}
	files, _ := filepath.Glob(filepath.Join(w.folder, "*.log"))
	for _, file := range files {
		text, failed := os.ReadFile(file)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(folder, filepath.Base(file)), text, 0o644))
	}
	if err != nil {
		return err.Error()
	}
	return "logs: " + folder
}
