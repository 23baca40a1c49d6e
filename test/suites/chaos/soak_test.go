package chaos

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
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

// sample is what the manager and the API server use after a round of work, when everything is deleted again.
type sample struct{ memory, goroutines, watches, writesPerJob, etcd float64 }

// growth is how much more the last third of a soak may use than the second; the first fills caches and pools.
const growth = 1.15

// TestNothingGrowsWithTime repeats the workload without faults for SOAK_MINUTES, and compares what it uses as time goes by. The users'
// actions stay, so that pods and objects come and go.
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
		l := newWorkload(w, round)
		require.NoError(t, l.create(t.Context()))
		before := w.proxy.writes.Load()
		l.live(t.Context(), faultsLast)
		l.judge(t.Context())
		assert.Empty(t, w.noted(), "round %d", round) // and what grows is seen all the same
		s := w.sample()
		s.writesPerJob = float64(w.proxy.writes.Load()-before) / float64(len(l.objects))
		samples = append(samples, s)
		t.Logf("round %d: %s", round, s)
	}
	require.GreaterOrEqual(t, len(samples), 6, "too few rounds to compare: raise SOAK_MINUTES")
	third := len(samples) / 3
	early, late := mean(samples[third:2*third]), mean(samples[2*third:])
	t.Logf("second third: %s\nlast third:   %s", early, late)
	for what, of := range map[string]func(sample) float64{
		"memory": func(s sample) float64 { return s.memory }, "goroutines": func(s sample) float64 { return s.goroutines },
		"watches":         func(s sample) float64 { return s.watches },
		"writes of a job": func(s sample) float64 { return s.writesPerJob }, "size of etcd": func(s sample) float64 { return s.etcd },
	} {
		assert.LessOrEqual(t, of(late), of(early)*growth, what)
	}
}

func (s sample) String() string {
	return fmt.Sprintf("%.0f MB of memory, %.0f goroutines, %.0f watches, %.0f writes per object, etcd %.1f MB",
		s.memory/1e6, s.goroutines, s.watches, s.writesPerJob, s.etcd/1e6)
}

func mean(of []sample) (m sample) {
	n := float64(len(of))
	for _, s := range of {
		m.memory += s.memory / n
		m.goroutines += s.goroutines / n
		m.watches += s.watches / n
		m.writesPerJob += s.writesPerJob / n
		m.etcd += s.etcd / n
	}
	return m
}

// sample asks the manager and the API server for their metrics.
func (w *world) sample() sample {
	manager := w.gauges(w.fetch("http://" + w.metrics + "/metrics"))
	api, err := kubernetes.NewForConfig(w.config)
	require.NoError(w.t, err)
	text, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(w.t.Context())
	require.NoError(w.t, err)
	server := w.gauges(text)
	return sample{
		memory: manager["process_resident_memory_bytes"], goroutines: manager["go_goroutines"],
		watches: server["apiserver_longrunning_requests"], etcd: w.etcdSize(),
	}
}

// etcdSize is that of the database after what is old was removed, as the write-ahead log and the file itself never shrink.
func (w *world) etcdSize() float64 {
	return w.gauges(w.fetch(w.etcd + "/metrics"))["etcd_mvcc_db_total_size_in_use_in_bytes"]
}

func (w *world) fetch(url string) []byte {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	require.NoError(w.t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(w.t, err)
	return text
}

// gauges are the sums of the series of each gauge in the metrics of a program.
func (w *world) gauges(text []byte) map[string]float64 {
	w.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(w.t, err, "%.300s", text)
	sums := map[string]float64{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			sums[name] += metric.GetGauge().GetValue()
		}
	}
	return sums
}
