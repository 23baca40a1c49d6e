package performance

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// measureScrapes runs jobs, each with a stand-in for the metrics server of its replica 0 on a port of its own, and
// watches the manager for a while. The manager has the settings of an installation: it scrapes every 30 seconds.
func measureScrapes(b *bench, results *strings.Builder) {
	c := b.startCluster(clusterOptions{policy: true, pods: podLife{lasting: true, loopback: true}})
	c.startManager()
	var (
		workers []*worker
		objects []client.Object
	)
	for i := range b.scrapeJobs {
		w, job := b.startWorker(everChanging), trainingJob(namespace, jobName(i), b.workers)
		w.reports(job)
		workers, objects = append(workers, w), append(objects, job)
	}
	c.createAndAwaitPods(objects, b.scrapeJobs*b.workers)
	c.awaitState(mlv1.StateRunning, b.scrapeJobs)
	b.pause(time.Minute) // until what the start left behind is done

	say("all %d jobs run; watching the manager for %s", b.scrapeJobs, b.scrapeFor)
	answers := func() (sum int64) {
		for _, w := range workers {
			sum += w.answers.Load()
		}
		return sum
	}
	patches := func() float64 { return c.counter("rest_client_requests_total", "method", http.MethodPatch) }
	before, patched, answered, start := c.cpu(), patches(), answers(), time.Now()
	b.pause(b.scrapeFor)
	window, scrapes := time.Since(start), answers()-answered
	cpu, sent := c.cpu()-before, patches()-patched
	fmt.Fprintf(results, "\nThe manager beside %d running jobs of %d workers, each scraped every 30 s from a metrics server of its own, with other figures every time:\n\n",
		b.scrapeJobs, b.workers)
	fmt.Fprintln(results, "| watched for | scrapes | PATCH requests | CPU | CPU per scrape | peak memory |\n|---:|---:|---:|---:|---:|---:|")
	fmt.Fprintf(results, "| %.0f s | %d | %.0f | **%.3f cores** | %.2f ms | **%d MiB** |\n",
		window.Seconds(), scrapes, sent, cpu.Seconds()/window.Seconds(), perJob(cpu, max(int(scrapes), 1)), c.peakMemory()>>20)
}
