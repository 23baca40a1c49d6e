package performance

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
)

// baselineLimit is how long the jobs of the baseline may take before the measurement gives up.
const baselineLimit = 15 * time.Minute

func measureBaseline(b *bench, results *strings.Builder) {
	c := b.startCluster(clusterOptions{bare: true})
	c.launchManager()
	require.NoError(b, c.createAll(b.Context(), baselineQueues()))
	ctx, cancel := context.WithTimeout(b.Context(), baselineLimit)
	defer cancel()
	// A few jobs of each class go before, until everything has been used once.
	c.runLoad(ctx, warmUp, baseline.Jobs(baseline.Cohorts, baseline.Classes(), 0.001))
	managed, before, start := c.settle(), c.writes(ctx), processorTimes(b)
	jobs := baseline.Jobs(baseline.Cohorts, baseline.Classes(), b.baselineScale)
	l := c.runLoad(ctx, namespace, jobs)
	used := usedSince(b, start)
	used[managerName] = c.cpu() - managed
	memory, writes := c.peakMemory(), c.writes(ctx)
	for kind := range writes {
		writes[kind] -= before[kind]
	}
	c.stop(managerName)
	aloneJobs := int(math.Ceil(aloneShare * float64(len(jobs))))
	alone := c.requestsAlone(ctx, jobs[len(jobs)-aloneJobs:])

	const most = int64(baseline.Queues * baseline.Quota)
	require.LessOrEqual(b, slices.Max(l.most), most, "units that pods of a cohort held at once, and its queues have")
	wall, allAlone := l.last.Sub(l.start), time.Duration(float64(alone)*float64(len(jobs))/float64(aloneJobs))
	fmt.Fprintf(results, "\nAll **%d of %d** AIJobs Succeeded, **%.0f s** after the first was created (Kueue's threshold: %.0f s; the quotas alone: %.0f s).\n",
		len(jobs), len(jobs), wall.Seconds(), baseline.Threshold.Seconds(), baseline.AtLeast.Seconds())
	fmt.Fprintf(results, "The last was created %.0f s after its time in the scenario. Pods of one cohort never held more than %d of its %d units.\n\n",
		l.late.Seconds(), slices.Max(l.most), most)
	waitsTable(results, l)
	fmt.Fprintf(results, "\nThe seven requests that none of them can do without, sent right after by %d clients for %d jobs more with no one watching, took %.1f ms per job:\n"+
		"**%.0f s** for %d jobs. The whole took **%.1f times** as long.\n",
		aloneClients, aloneJobs, perJob(alone, aloneJobs), allAlone.Seconds(), len(jobs), wall.Seconds()/allAlone.Seconds())
	usageTable(results, len(jobs), wall, used, memory)
	requestsTable(results, len(jobs), writes)
}

// baselineQueues are the queues of the scenario. A unit is a core.
func baselineQueues() []client.Object {
	var objects []client.Object
	cores := func(n int) *aiplatformv1alpha1.ResourceLimits {
		return &aiplatformv1alpha1.ResourceLimits{CPU: ptr.To(*resource.NewQuantity(int64(n), resource.DecimalSI))}
	}
	for c := range baseline.Cohorts {
		for q := range baseline.Queues {
			objects = append(objects, &aiplatformv1alpha1.AIJobQueue{
				ObjectMeta: metav1.ObjectMeta{Name: baseline.Queue(c, q)},
				Spec: aiplatformv1alpha1.AIJobQueueSpec{
					Cohort: baseline.Cohort(c), Quotas: cores(baseline.Quota), BorrowingLimits: cores(baseline.Borrowing),
					MaxConcurrency: 1000, // only the quotas limit
				},
			})
		}
	}
	return objects
}

// writes counts the requests that changed something, by the API server's own metrics.
func (c *cluster) writes(ctx context.Context) map[write]int {
	text, err := c.typed().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	require.NoError(c, err)
	count := map[write]int{}
	c.eachSeries(bytes.NewReader(text), "apiserver_request_total", func(is map[string]string, requests float64) {
		switch is["verb"] {
		case "POST", "PUT", "PATCH", "DELETE", "APPLY":
			count[writeTo(is["resource"], is["subresource"], is["verb"])] += int(requests)
		}
	})
	require.NotEmpty(c, count, "the API server's metrics count no request")
	return count
}

// share is the value below which so much of sorted values lies.
func share(sorted []time.Duration, of float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(of*float64(len(sorted))))-1, 0)]
}
