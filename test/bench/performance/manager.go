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

// startManager launches the manager and waits until it has run a few jobs.
func (c *cluster) startManager(arguments ...string) {
	c.launchManager(arguments...)
	const jobs = 5
	var objects []client.Object
	for i := range jobs {
		objects = append(objects, trainingJob(warmUp, fmt.Sprintf("%s-%d", jobName(i), c.running[managerName].PID()), c.workers))
	}
	require.NoError(c, c.createAll(c.Context(), objects))
	c.await("the first jobs run", time.Minute, func() (bool, error) {
		count, err := c.states(warmUp)
		return len(count) > 0 && count[""]+count[mlv1.StatePending]+count[mlv1.StateInitializing] == 0, err
	})
}

// launchManager starts the manager, with the settings that it has by itself unless arguments say otherwise.
func (c *cluster) launchManager(arguments ...string) {
	kubeconfig := c.kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+managerNamespace)
	address := process.FreePort(c, process.AnyPort)
	arguments = append([]string{
		"manager", "--leader-elect=false", "--metrics-bind-address=" + address, "--metrics-secure=false",
		"--health-probe-bind-address=0",
	}, arguments...)
	c.start(managerName, c.manager, []string{"KUBECONFIG=" + kubeconfig}, arguments...)
	c.metrics = "http://" + address + "/metrics"
}

// cpu is the processor time that the manager has used, peakMemory the most that it had resident, in bytes.
func (c *cluster) cpu() time.Duration { return processorTime(c, c.running[managerName].PID()) }

func (c *cluster) peakMemory() int64 { return peakMemory(c, c.running[managerName].PID()) }

// awaitState waits until so many jobs of the namespace are in the state.
func (c *cluster) awaitState(state mlv1.State, jobs int) {
	c.Helper()
	c.await(fmt.Sprintf("%d jobs are %s", jobs, state), 10*time.Minute, func() (bool, error) {
		count, err := c.states(namespace)
		if err == nil && count[state] < jobs {
			c.pause(800 * time.Millisecond) // listing them is work for the API server
			err = fmt.Errorf("found %v", count)
		}
		return err == nil, err
	})
}

// settle waits until the manager has nothing to do and returns the processor time that it has used.
func (c *cluster) settle() time.Duration {
	c.Helper()
	used := c.cpu()
	c.await("the manager rests", 2*time.Minute, func() (bool, error) {
		c.pause(2 * time.Second)
		before := used
		used = c.cpu()
		return used-before <= 2*clockTick, nil
	})
	return used
}

// counter is the sum of a counter's series with the label, from the manager's metrics.
func (c *cluster) counter(name, label, value string) (sum float64) {
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.metrics, nil)
	require.NoError(c, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(c, err)
	defer func() { _ = answer.Body.Close() }()
	c.eachSeries(answer.Body, name, func(labels map[string]string, count float64) {
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
