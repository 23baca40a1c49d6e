// Package performance measures the operator on simulated nodes: what it writes for one TrainingJob, how long many jobs
// created at once need until all their pods exist, compared with bare Indexed Jobs, and what the manager uses meanwhile; and
// how soon thousands of AIJobs go through their queues.
// It starts the control plane that it needs on ports of its own on the loopback address and stops it at the end.
//
//	make bench                       a quick run
//	make bench BENCH_ARGS=-full      200 and 1,000 jobs, three rounds each
//
// The programs of the control plane are looked for in KUBEBUILDER_ASSETS, else where hack/localcluster builds them.
package performance

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// settings are the flags of the benchmark.
type settings struct {
	jobs     []int
	rounds   int
	workers  int
	nodes    int
	lifeJobs int
	// scrapeJobs run for scrapeFor while their figures are read.
	scrapeJobs int
	scrapeFor  time.Duration
	// baselineScale is the share of the baseline's jobs that are run.
	baselineScale float64

	full    bool
	only    string
	doc     string
	manager string
}

// parts of the measurement.
var parts = []struct {
	name    string
	measure func(b *bench, results *strings.Builder)
}{
	{"writes", measureWrites}, {"restarts", measureRestarts}, {"scale", measureScales}, {"scrapes", measureScrapes}, {"baseline", measureBaseline},
}

var given = flags()

func flags() *settings {
	s := &settings{jobs: []int{50}}
	flag.Func("jobs", "numbers of jobs created at once, separated by commas (default 50)", func(text string) error {
		s.jobs = nil
		for word := range strings.SplitSeq(text, ",") {
			count, err := strconv.Atoi(word)
			if err != nil || count < 1 {
				return fmt.Errorf("%q is no number of jobs", word)
			}
			s.jobs = append(s.jobs, count)
		}
		return nil
	})
	flag.IntVar(&s.rounds, "rounds", 3, "rounds of each kind; medians are reported")
	flag.IntVar(&s.workers, "workers", 4, "workers of a job")
	flag.IntVar(&s.nodes, "nodes", 20, "simulated nodes")
	flag.IntVar(&s.lifeJobs, "life-jobs", 20, "jobs whose writes are counted")
	flag.IntVar(&s.scrapeJobs, "scrape-jobs", 100, "running jobs that are scraped")
	flag.DurationVar(&s.scrapeFor, "scrape-for", 90*time.Second, "how long they are")
	flag.Float64Var(&s.baselineScale, "baseline-scale", 0.1, "share of the 15,000 jobs of the queues' baseline that are run, at most 1")
	flag.StringVar(&s.only, "only", "", "measure one part only: writes, restarts, scale, scrapes or baseline")
	flag.StringVar(&s.doc, "doc", "", "Markdown file whose sections of results are replaced")
	flag.StringVar(&s.manager, "manager", "", "program to measure (default: built from this tree)")
	flag.BoolVar(&s.full, "full", false, "the same as -jobs 200,1000 -scrape-jobs 1000 -scrape-for 5m -baseline-scale 1")
	return s
}

func (s *settings) complete(t testing.TB) {
	if s.full {
		s.jobs, s.scrapeJobs, s.scrapeFor, s.baselineScale = []int{200, 1000}, 1000, 5*time.Minute, 1
	}
	require.True(t, s.baselineScale > 0 && s.baselineScale <= 1, "-baseline-scale: want more than 0 and at most 1")
	names := []string{""}
	for _, part := range parts {
		names = append(names, part.name)
	}
	require.Contains(t, names, s.only, "-only names a part")
	require.True(t, min(s.rounds, s.workers, s.nodes, s.lifeJobs, s.scrapeJobs) >= 1 && s.scrapeFor >= time.Second,
		"-rounds, -workers, -nodes, -life-jobs and -scrape-jobs: want at least 1; -scrape-for: at least 1s")
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		_, err := os.Stat(filepath.Join(apiserver.Binaries(), program))
		require.NoError(t, err, "build it with `make bench`, or name another folder in KUBEBUILDER_ASSETS")
	}
	if s.manager == "" {
		s.manager = operator.Shipped(t)
	}
	s.manager, s.doc = fromRoot(s.manager), fromRoot(s.doc)
}

// fromRoot is a path from the top folder of the repository: tests run in the folder of their package.
func fromRoot(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(apiserver.Root(), path)
}

// command is how the measurement is made again.
func command() string {
	given := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(argument string) bool { return strings.HasPrefix(argument, "-test.") })
	if len(given) == 0 {
		return "make bench"
	}
	return fmt.Sprintf("make bench BENCH_ARGS='%s'", strings.Join(given, " "))
}

// bench is a part of the measurement.
type bench struct {
	*testing.B
	settings

	ctx context.Context
}

// Context ends when the user wants no more.
func (b *bench) Context() context.Context { return b.ctx }

// part runs a part of the measurement. What is started in it ends with it.
func (b *bench) part(name string, do func(*bench)) {
	name = strings.ReplaceAll(name, ",", "") // it is in the paths of folders, and kwok takes several files with commas between
	if !b.Run(name, func(own *testing.B) { do(&bench{B: own, settings: b.settings, ctx: b.ctx}) }) {
		b.FailNow()
	}
}

func (b *bench) pause(length time.Duration) {
	b.Helper()
	select {
	case <-b.ctx.Done():
		require.NoError(b, b.ctx.Err())
	case <-time.After(length):
	}
}

// Measure measures all parts, or the one that a flag names, and publishes the results.
func Measure(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(b.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s := *given
	s.complete(b)
	all := &bench{B: b, settings: s, ctx: ctx}
	var results, queues strings.Builder
	for _, part := range parts {
		into := &results
		if part.name == "baseline" {
			into = &queues
		}
		if s.only == "" || s.only == part.name {
			all.part(part.name, func(b *bench) { part.measure(b, into) })
		}
	}
	all.publish(resultsBegin, resultsEnd, results.String())
	all.publish(queuesBegin, queuesEnd, queues.String())
}

func median[T ~int64 | ~float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// say tells on standard error what goes on; standard output is for the results.
func say(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, arguments...))
}
