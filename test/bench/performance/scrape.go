package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// scraped is what the manager used while jobs ran whose figures changed with every scrape.
type scraped struct {
	jobs, workers int
	window        time.Duration
	// cpu is the manager's processor time in the window, memory the most that it had resident until its end, in bytes.
	cpu    time.Duration
	memory int64
	// scrapes were answered and patches sent in the window.
	scrapes int64
	patches float64
}

// measureScrapes runs jobs, each with a stand-in for the metrics server of its replica 0 on a port of its own, and
// watches the manager for a while. The manager has the settings of an installation: it scrapes every 30 seconds.
func measureScrapes(ctx context.Context, s settings) (measured scraped, err error) {
	measured = scraped{jobs: s.scrapeJobs, workers: s.workers, window: s.scrapeFor}
	c, err := startCluster(ctx, s, clusterOptions{policy: true, pods: podLife{lasting: true, loopback: true}})
	defer c.stop()
	if err != nil {
		return measured, err
	}
	m, err := c.startManager(ctx)
	if err != nil {
		return measured, err
	}
	defer m.stop()
	var (
		workers []*worker
		objects []client.Object
	)
	defer func() { stopAll(workers) }()
	for i := range s.scrapeJobs {
		w, err := startWorkerWith(writeEverChanging)
		if err != nil {
			return measured, err
		}
		workers = append(workers, w)
		job := trainingJob(namespace, jobName(i), s.workers)
		job.Spec.Monitoring = mlv1.Monitoring{MetricsPort: int32(w.port)}
		objects = append(objects, job)
	}
	if _, err := c.createAndAwaitPods(ctx, objects, s.scrapeJobs*s.workers); err != nil {
		return measured, err
	}
	if err := m.awaitState(ctx, mlv1.StateRunning, s.scrapeJobs); err != nil {
		return measured, err
	}
	if err := pause(ctx, time.Minute); err != nil { // until what the start left behind is done
		return measured, err
	}

	say("all %d jobs run; watching the manager for %s", s.scrapeJobs, s.scrapeFor)
	answers := func() (sum int64) {
		for _, w := range workers {
			sum += w.answers.Load()
		}
		return sum
	}
	cpu, err := m.cpu()
	if err != nil {
		return measured, err
	}
	patches, err := m.counter(ctx, "rest_client_requests_total", "method", http.MethodPatch)
	if err != nil {
		return measured, err
	}
	scrapes, start := answers(), time.Now()
	if err := pause(ctx, s.scrapeFor); err != nil {
		return measured, err
	}
	measured.window, measured.scrapes = time.Since(start), answers()-scrapes
	used, err := m.cpu()
	if err != nil {
		return measured, err
	}
	measured.cpu = used - cpu
	sent, err := m.counter(ctx, "rest_client_requests_total", "method", http.MethodPatch)
	if err != nil {
		return measured, err
	}
	measured.patches = sent - patches
	measured.memory, err = m.peakMemory()
	say("%s", measured)
	return measured, err
}

// String implements fmt.Stringer.
func (s scraped) String() string {
	return fmt.Sprintf("%d jobs for %.0f s: %d scrapes, %.0f patches, %.3f cores, %.2f ms per scrape, %d MiB",
		s.jobs, s.window.Seconds(), s.scrapes, s.patches, s.cores(), s.perScrape(), s.memory>>20)
}

func (s scraped) cores() float64 { return s.cpu.Seconds() / s.window.Seconds() }

func (s scraped) perScrape() float64 { return s.cpu.Seconds() * 1000 / float64(max(s.scrapes, 1)) }

func (r *report) scrapeTable(out *strings.Builder) {
	s := r.scraped
	fmt.Fprintf(out, "\nThe manager beside %d running jobs of %d workers, each scraped every 30 s from a metrics server of its own, with other figures every time:\n\n",
		s.jobs, s.workers)
	fmt.Fprintln(out, "| watched for | scrapes | PATCH requests | CPU | CPU per scrape | peak memory |\n|---:|---:|---:|---:|---:|---:|")
	fmt.Fprintf(out, "| %.0f s | %d | %.0f | **%.3f cores** | %.2f ms | **%d MiB** |\n",
		s.window.Seconds(), s.scrapes, s.patches, s.cores(), s.perScrape(), s.memory>>20)
}
