// Command performance measures the operator on simulated nodes: what it writes for one TrainingJob, how long many jobs
// created at once need until all their pods exist, compared with bare Indexed Jobs, and what the manager uses meanwhile; and
// how soon thousands of AIJobs go through their queues.
// It starts the control plane that it needs on ports of its own on the loopback address and stops it at the end.
//
//	go run ./test/bench/performance          a quick run
//	go run ./test/bench/performance -full    200 and 1,000 jobs, three rounds each
//
// The programs of the control plane are looked for in KUBEBUILDER_ASSETS, else where hack/localcluster builds them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// settings are the flags of the command.
type settings struct {
	jobs     counts
	rounds   int
	workers  int
	nodes    int
	lifeJobs int
	// scrapeJobs run for scrapeFor while their figures are read.
	scrapeJobs int
	scrapeFor  time.Duration
	// baselineScale is the share of the baseline's jobs that are run.
	baselineScale float64

	only      string
	doc       string
	manager   string
	assets    string
	arguments []string

	// work holds all files of this run.
	work string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, s)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

// parts of the measurement.
var parts = []string{"writes", "restarts", "scale", "scrapes", "baseline"}

// measures says whether a part is to be measured.
func (s settings) measures(part string) bool { return s.only == "" || s.only == part }

func parse(arguments []string) (settings, error) {
	s := settings{jobs: counts{50}, assets: os.Getenv("KUBEBUILDER_ASSETS"), arguments: arguments}
	flags := flag.NewFlagSet("performance", flag.ContinueOnError)
	flags.Var(&s.jobs, "jobs", "numbers of jobs created at once, separated by commas")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds of each kind; medians are reported")
	flags.IntVar(&s.workers, "workers", 4, "workers of a job")
	flags.IntVar(&s.nodes, "nodes", 20, "simulated nodes")
	flags.IntVar(&s.lifeJobs, "life-jobs", 20, "jobs whose writes are counted")
	flags.IntVar(&s.scrapeJobs, "scrape-jobs", 100, "running jobs that are scraped")
	flags.DurationVar(&s.scrapeFor, "scrape-for", 90*time.Second, "how long they are")
	flags.Float64Var(&s.baselineScale, "baseline-scale", 0.1, "share of the 15,000 jobs of the queues' baseline that are run, at most 1")
	flags.StringVar(&s.only, "only", "", "measure one part only: writes, restarts, scale, scrapes or baseline")
	flags.StringVar(&s.doc, "doc", "", "Markdown file whose sections of results are replaced")
	flags.StringVar(&s.manager, "manager", "", "program to measure (default: built from this tree)")
	full := flags.Bool("full", false, "the same as -jobs 200,1000 -scrape-jobs 1000 -scrape-for 5m -baseline-scale 1")
	if err := flags.Parse(arguments); err != nil {
		return s, flag.ErrHelp // the flag set has said what is wrong
	}
	if *full {
		s.jobs, s.scrapeJobs, s.scrapeFor, s.baselineScale = counts{200, 1000}, 1000, 5*time.Minute, 1
	}
	if s.baselineScale <= 0 || s.baselineScale > 1 {
		return s, fmt.Errorf("-baseline-scale %g: want more than 0 and at most 1", s.baselineScale)
	}
	if s.only != "" && !slices.Contains(parts, s.only) {
		return s, fmt.Errorf("-only %s: want %s", s.only, strings.Join(parts, ", "))
	}
	if min(s.rounds, s.workers, s.nodes, s.lifeJobs, s.scrapeJobs) < 1 || s.scrapeFor < time.Second {
		return s, errors.New("-rounds, -workers, -nodes, -life-jobs and -scrape-jobs: want at least 1; -scrape-for: at least 1s")
	}
	return s, nil
}

func run(ctx context.Context, s settings) (err error) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if s.assets, err = findAssets(s.assets); err != nil {
		return err
	}
	if s.work, err = os.MkdirTemp("", "performance-"); err != nil {
		return err
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(s.work)
		} else {
			err = fmt.Errorf("%w\nlogs are kept in %s", err, s.work)
		}
	}()
	if s.manager == "" {
		if s.manager, err = buildManager(ctx, s.work); err != nil {
			return err
		}
	}
	report := newReport(s)
	if s.measures("writes") {
		if report.writes, err = measureWrites(ctx, s); err != nil {
			return fmt.Errorf("count writes: %w", err)
		}
	}
	if s.measures("restarts") {
		if report.restarts, err = measureRestarts(ctx, s); err != nil {
			return fmt.Errorf("measure restarts: %w", err)
		}
	}
	if s.measures("scale") {
		for _, jobs := range s.jobs {
			measured, err := measureScale(ctx, s, jobs)
			if err != nil {
				return fmt.Errorf("measure %d jobs: %w", jobs, err)
			}
			report.scales = append(report.scales, measured)
		}
	}
	if s.measures("scrapes") {
		measured, err := measureScrapes(ctx, s)
		if err != nil {
			return fmt.Errorf("measure scrapes: %w", err)
		}
		report.scraped = &measured
	}
	if s.measures("baseline") {
		measured, err := measureBaseline(ctx, s)
		if err != nil {
			return fmt.Errorf("run the baseline of queues: %w", err)
		}
		report.queues = &measured
	}
	return report.publish()
}

// findAssets returns the folder of the control plane's programs.
func findAssets(folder string) (string, error) {
	if folder == "" {
		folder = filepath.Join(".localcluster", "bin")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"} {
		if _, err := os.Stat(filepath.Join(folder, program)); err != nil {
			return "", fmt.Errorf("%s is not in %s: build it with `make bench`, or name another folder in KUBEBUILDER_ASSETS", program, folder)
		}
	}
	return folder, nil
}

func buildManager(ctx context.Context, folder string) (string, error) {
	program := filepath.Join(folder, "manager")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-tags=disable_grpc_modules,grpcnotrace", "-ldflags=-s -w", "-o", program, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build the manager (in the top folder of the repository?): %w", err)
	}
	return program, nil
}

// counts is a flag with several numbers.
type counts []int

// String implements flag.Value.
func (c *counts) String() string {
	var words []string
	for _, count := range *c {
		words = append(words, strconv.Itoa(count))
	}
	return strings.Join(words, ",")
}

// Set implements flag.Value.
func (c *counts) Set(text string) error {
	*c = nil
	for word := range strings.SplitSeq(text, ",") {
		count, err := strconv.Atoi(word)
		if err != nil || count < 1 {
			return fmt.Errorf("%q is no number of jobs", word)
		}
		*c = append(*c, count)
	}
	return nil
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
