package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
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
	settings settings
	jobs     int
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

func measureBaseline(ctx context.Context, s settings) (measured queues, err error) {
	measured = queues{settings: s, waits: map[string][]time.Duration{}}
	c, err := startCluster(ctx, s, clusterOptions{bare: true})
	defer c.stop()
	if err != nil {
		return measured, err
	}
	m, err := c.launchManager()
	if err != nil {
		return measured, err
	}
	defer m.stop()
	if err := createAll(ctx, c.client, baselineQueues()); err != nil {
		return measured, err
	}
	ctx, cancel := context.WithTimeout(ctx, baselineLimit)
	defer cancel()
	// A few jobs of each class go before, until everything has been used once.
	if _, err := c.runLoad(ctx, m, warmUp, baseline.Jobs(baseline.Cohorts, baseline.Classes(), 0.001)); err != nil {
		return measured, fmt.Errorf("the first jobs: %w", err)
	}
	managed, err := m.settle(ctx)
	if err != nil {
		return measured, err
	}
	before, err := c.writes(ctx)
	if err != nil {
		return measured, err
	}
	used := processorTimes()
	jobs := baseline.Jobs(baseline.Cohorts, baseline.Classes(), s.baselineScale)
	l, err := c.runLoad(ctx, m, namespace, jobs)
	if err != nil {
		return measured, err
	}
	measured.used = processorTimes()
	for name := range measured.used {
		measured.used[name] -= used[name]
	}
	end, err := m.cpu()
	if err != nil {
		return measured, err
	}
	measured.used[m.name] = end - managed
	if measured.memory, err = m.peakMemory(); err != nil {
		return measured, err
	}
	if measured.writes, err = c.writes(ctx); err != nil {
		return measured, err
	}
	for kind := range measured.writes {
		measured.writes[kind] -= before[kind]
	}
	measured.jobs, measured.wall, measured.late, measured.most = len(jobs), l.last.Sub(l.start), l.late, slices.Max(l.most)
	for _, j := range l.jobs {
		measured.waits[j.Class.Name] = append(measured.waits[j.Class.Name], j.scheduled.Sub(j.sent))
	}
	m.stop()
	measured.aloneJobs = int(math.Ceil(aloneShare * float64(len(jobs))))
	if measured.alone, err = c.requestsAlone(ctx, jobs[len(jobs)-measured.aloneJobs:]); err != nil {
		return measured, fmt.Errorf("send the requests alone: %w", err)
	}
	if most := int64(baseline.Queues * baseline.Quota); measured.most > most {
		return measured, fmt.Errorf("pods of a cohort held %d units at once, but its queues have %d", measured.most, most)
	}
	return measured, nil
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
func (c *cluster) writes(ctx context.Context) (map[write]int, error) {
	typed, err := c.typed()
	if err != nil {
		return nil, err
	}
	text, err := typed.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	count := map[write]int{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		is := map[string]string{}
		for _, pair := range metric.GetLabel() {
			is[pair.GetName()] = pair.GetValue()
		}
		switch is["verb"] {
		case "POST", "PUT", "PATCH", "DELETE", "APPLY":
			kind := write{resource: is["resource"], verb: is["verb"]}
			if is["subresource"] != "" {
				kind.resource += "/" + is["subresource"]
			}
			count[kind] += int(metric.GetCounter().GetValue())
		}
	}
	if len(count) == 0 {
		return nil, errors.New("the API server's metrics count no request")
	}
	return count, nil
}

// share is the value below which so much of sorted values lies.
func share(sorted []time.Duration, of float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(of*float64(len(sorted))))-1, 0)]
}
