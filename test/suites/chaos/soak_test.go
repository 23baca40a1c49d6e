package chaos

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
)

// sample is what the manager and the API server use after a round of work, when everything is deleted again. Of the memory it is the least
// that a collection of garbage left in use in the round.
type sample struct{ memory, goroutines, watches, writesPerJob, etcd float64 }

// rounds are the fewest that a line is laid through.
const rounds = 8

// TestNothingGrowsWithTime repeats the workload without faults for SOAK_MINUTES, and lays a line through what it uses as time goes by. The
// users' actions stay, so that pods and objects come and go.
func TestNothingGrowsWithTime(t *testing.T) {
	minutes := number(t, "SOAK_MINUTES", 0)
	if minutes == 0 {
		t.Skip("takes hours: make soak runs it")
	}
	ctrl.SetLogger(logr.Discard())
	w := newWorld(t, newTally(append(append(proxyFaults, nodeFaults...), userFaults...)...), newTally(invariants...))
	w.proxy.begin(0)
	w.proxy.end()
	var samples []sample
	for end, round := time.Now().Add(time.Duration(minutes)*time.Minute), uint64(1); time.Now().Before(end); round++ {
		least := w.leastHeap()
		l := newWorkload(w, round)
		require.NoError(t, l.create(t.Context()))
		before := w.proxy.writes.Load()
		l.live(t.Context(), faultsLast)
		l.judge(t.Context())
		assert.Empty(t, w.noted(), "round %d", round) // and what grows is seen all the same
		s := w.sample()
		s.memory = least()
		s.writesPerJob = float64(w.proxy.writes.Load()-before) / float64(len(l.objects))
		samples = append(samples, s)
		t.Logf("round %d: %s", round, s)
	}
	require.GreaterOrEqual(t, len(samples), rounds, "too few rounds to compare: raise SOAK_MINUTES")
	for what, of := range map[string]func(sample) float64{
		"memory": func(s sample) float64 { return s.memory }, "goroutines": func(s sample) float64 { return s.goroutines },
		"watches":         func(s sample) float64 { return s.watches },
		"writes of a job": func(s sample) float64 { return s.writesPerJob }, "size of etcd": func(s sample) float64 { return s.etcd },
	} {
		var values []float64
		for _, s := range samples {
			values = append(values, of(s))
		}
		line := trendOf(values)
		t.Logf("%s: %s", what, line)
		assert.False(t, line.grows(), "%s: %s", what, line)
	}
}

func (s sample) String() string {
	return fmt.Sprintf("%.1f MB of memory, %.0f goroutines, %.0f watches, %.0f writes per object, etcd %.1f MB",
		s.memory/1e6, s.goroutines, s.watches, s.writesPerJob, s.etcd/1e6)
}

// sample asks the manager and the API server for their metrics.
func (w *world) sample() sample {
	manager := w.sums("http://" + w.metrics + "/metrics")
	api, err := kubernetes.NewForConfig(w.config)
	require.NoError(w.t, err)
	text, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(w.t.Context())
	require.NoError(w.t, err)
	server, err := sumsIn(text)
	require.NoError(w.t, err)
	return sample{goroutines: manager["go_goroutines"], watches: server["apiserver_longrunning_requests"], etcd: w.etcdSize()}
}

// leastHeap begins to read what is in use of the manager's heap, and returns what ends that and tells the least. That of a single moment
// depends on when garbage was collected last.
func (w *world) leastHeap() (end func() float64) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var reading sync.WaitGroup
	least := 0.0
	reading.Go(func() {
		for {
			manager, err := sumsOf(ctx, "http://"+w.metrics+"/metrics")
			// Go tells what the last collection left in use. Without that it is what is in use now.
			heap := cmp.Or(manager["go_gc_heap_live_bytes"], manager["go_memstats_heap_alloc_bytes"])
			if err == nil && heap > 0 && (least == 0 || heap < least) {
				least = heap
			}
			if !sleep(ctx, time.Second) {
				return
			}
		}
	})
	return func() float64 {
		cancel()
		reading.Wait()
		return least
	}
}

// sleep says whether the context has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// etcdSize is that of the database after what is old was removed, as the write-ahead log and the file itself never shrink.
func (w *world) etcdSize() float64 {
	return w.sums(w.etcd + "/metrics")["etcd_mvcc_db_total_size_in_use_in_bytes"]
}

func (w *world) sums(url string) map[string]float64 {
	w.t.Helper()
	sums, err := sumsOf(w.t.Context(), url)
	require.NoError(w.t, err)
	return sums
}

// sumsOf reads the sums of the metrics of a program.
func sumsOf(ctx context.Context, url string) (map[string]float64, error) {
	text, err := metricsOf(ctx, url)
	if err != nil {
		return nil, err
	}
	return sumsIn(text)
}

// metricsOf reads the metrics of a program.
func metricsOf(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

// sumsIn are the sums of the series of each gauge and counter in metrics.
func sumsIn(text []byte) (map[string]float64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%.300s: %w", text, err)
	}
	sums := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			sums[name] += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return sums, nil
}
