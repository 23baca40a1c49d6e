package performance

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

// managerName is that of the manager among the programs of a cluster.
const managerName = "manager"

// manager is the operator's manager as a child process.
type manager struct {
	*cluster

	process *process.Server
	metrics string
}

// startManager launches the manager and waits until it has run a few jobs.
func (c *cluster) startManager(arguments ...string) *manager {
	m := c.launchManager(arguments...)
	const jobs = 5
	var objects []client.Object
	for i := range jobs {
		objects = append(objects, trainingJob(warmUp, fmt.Sprintf("%s-%d", jobName(i), m.process.PID()), c.workers))
	}
	require.NoError(c, c.createAll(c.Context(), objects))
	c.await("the first jobs run", time.Minute, func() (bool, error) {
		count, err := c.states(warmUp)
		return len(count) > 0 && count[""]+count[mlv1.StatePending]+count[mlv1.StateInitializing] == 0, err
	})
	return m
}

// launchManager starts the manager, with the settings that it has by itself unless arguments say otherwise.
func (c *cluster) launchManager(arguments ...string) *manager {
	kubeconfig := c.kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+managerNamespace)
	address := process.FreePort(c, process.AnyPort)
	arguments = append([]string{
		"manager", "--leader-elect=false", "--metrics-bind-address=" + address, "--metrics-secure=false",
		"--health-probe-bind-address=0",
	}, arguments...)
	started := c.start(managerName, c.manager, []string{"KUBECONFIG=" + kubeconfig}, arguments...)
	return &manager{cluster: c, process: started, metrics: "http://" + address + "/metrics"}
}

func (m *manager) cpu() time.Duration { return processorTime(m, m.process.PID()) }

func (m *manager) peakMemory() int64 { return peakMemory(m, m.process.PID()) }

// awaitState waits until so many jobs of the namespace are in the state.
func (m *manager) awaitState(state mlv1.State, jobs int) {
	m.Helper()
	var last map[mlv1.State]int
	asked := time.Time{}
	m.await(fmt.Sprintf("%d jobs are %s", jobs, state), 10*time.Minute, func() (bool, error) {
		if time.Since(asked) < time.Second { // listing them is work for the API server
			return false, fmt.Errorf("found %v", last)
		}
		count, err := m.states(namespace)
		if asked = time.Now(); err != nil {
			return false, err
		}
		last = count
		return count[state] >= jobs, fmt.Errorf("found %v", last)
	})
}

// settle waits until the manager has nothing to do and returns the processor time that it has used.
func (m *manager) settle() time.Duration {
	m.Helper()
	used, asked := m.cpu(), time.Now()
	m.await("the manager rests", 2*time.Minute, func() (bool, error) {
		if time.Since(asked) < 2*time.Second {
			return false, nil
		}
		now := m.cpu()
		rests := now-used <= 2*clockTick
		used, asked = now, time.Now()
		return rests, nil
	})
	return used
}

// counter is the sum of a counter's series with the label, from the manager's metrics.
func (m *manager) counter(name, label, value string) (sum float64) {
	request, err := http.NewRequestWithContext(m.Context(), http.MethodGet, m.metrics, nil)
	require.NoError(m, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(m, err)
	defer func() { _ = answer.Body.Close() }()
	m.eachSeries(answer.Body, name, func(labels map[string]string, count float64) {
		if labels[label] == value {
			sum += count
		}
	})
	return sum
}

// eachSeries calls do with the labels and the value of each series of a counter.
func (c *cluster) eachSeries(metrics io.Reader, name string, do func(labels map[string]string, count float64)) {
	c.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	require.NoError(c, err)
	for _, metric := range families[name].GetMetric() {
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		do(labels, metric.GetCounter().GetValue())
	}
}
