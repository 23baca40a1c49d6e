package performance

import (
	"bytes"
	"context"
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

// queues is what was measured with the baseline of queues.
type queues struct {
	jobs int
	// wall is the time from the first creation to the end of the last job; late is how long after its time the last job was
	// created, which the scenario does not know.
	wall, late time.Duration
	// waits of the jobs of each class, from the request to create one to its phase Scheduled.
	waits map[string][]time.Duration
	// used is the processor time of each program, memory the most that the manager had resident, in bytes.
	used   map[string]time.Duration
	memory int64
	// writes are the requests that changed something, of all clients.
	writes map[write]int
	// most units that pods of one cohort held at any time.
	most int64
	// alone is how long the requests alone took of so many jobs.
	alone     time.Duration
	aloneJobs int
}

func measureBaseline(b *bench, results *strings.Builder) {
	measured := queues{waits: map[string][]time.Duration{}}
	c := b.startCluster(clusterOptions{bare: true})
	m := c.launchManager()
	require.NoError(b, c.createAll(b.Context(), baselineQueues()))
	ctx, cancel := context.WithTimeout(b.Context(), baselineLimit)
	defer cancel()
	// A few jobs of each class go before, until everything has been used once.
	c.runLoad(ctx, warmUp, baseline.Jobs(baseline.Cohorts, baseline.Classes(), 0.001))
	managed, before, used := m.settle(), c.writes(ctx), processorTimes(b)
	jobs := baseline.Jobs(baseline.Cohorts, baseline.Classes(), b.baselineScale)
	l := c.runLoad(ctx, namespace, jobs)
	measured.used = usedSince(b, used)
	measured.used[managerName] = m.cpu() - managed
	measured.memory, measured.writes = m.peakMemory(), c.writes(ctx)
	for kind := range measured.writes {
		measured.writes[kind] -= before[kind]
	}
	measured.jobs, measured.wall, measured.late, measured.most = len(jobs), l.last.Sub(l.start), l.late, slices.Max(l.most)
	for _, j := range l.jobs {
		measured.waits[j.Class.Name] = append(measured.waits[j.Class.Name], j.scheduled.Sub(j.sent))
	}
	c.stop(managerName)
	measured.aloneJobs = int(math.Ceil(aloneShare * float64(len(jobs))))
	measured.alone = c.requestsAlone(ctx, jobs[len(jobs)-measured.aloneJobs:])
	require.LessOrEqual(b, measured.most, int64(baseline.Queues*baseline.Quota), "units that pods of a cohort held at once, and its queues have")
	measured.write(results)
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
