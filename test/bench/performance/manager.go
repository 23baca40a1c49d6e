package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// manager is the operator's manager as a child process.
type manager struct {
	*process

	cluster *cluster
	metrics string
}

// startManager launches the manager and waits until it has taken up a first job.
func (c *cluster) startManager(ctx context.Context, arguments ...string) (*manager, error) {
	m, err := c.launchManager(arguments...)
	if err != nil {
		return nil, err
	}
	if err := m.warmUp(ctx); err != nil {
		m.stop()
		return nil, err
	}
	return m, nil
}

// launchManager starts the manager, with the settings that it has by itself unless arguments say otherwise.
func (c *cluster) launchManager(arguments ...string) (*manager, error) {
	kubeconfig, err := c.kubeconfig(managerUser, "system:serviceaccounts", "system:serviceaccounts:"+managerNamespace)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	arguments = append([]string{
		"manager", "--leader-elect=false", "--metrics-bind-address=" + address, "--metrics-secure=false",
		"--health-probe-bind-address=0",
	}, arguments...)
	started, err := startProcess(c.folder, "manager", c.settings.manager, []string{"KUBECONFIG=" + kubeconfig}, arguments...)
	if err != nil {
		return nil, err
	}
	return &manager{process: started, cluster: c, metrics: "http://" + address + "/metrics"}, nil
}

// warmUp has the manager run a few jobs.
func (m *manager) warmUp(ctx context.Context) error {
	const jobs = 5
	var objects []client.Object
	for i := range jobs {
		name := fmt.Sprintf("%s-%d", jobName(i), m.pid)
		objects = append(objects, trainingJob(warmUp, name, m.cluster.settings.workers))
	}
	if err := createAll(ctx, m.cluster.client, objects); err != nil {
		return err
	}
	return m.await(ctx, "the first jobs run", time.Minute, func() (bool, error) {
		count, err := states(ctx, m.cluster.client, warmUp)
		return len(count) > 0 && count[""]+count[mlv1.StatePending]+count[mlv1.StateInitializing] == 0, err
	})
}

// await waits until something is so, while the cluster and the manager run.
func (m *manager) await(ctx context.Context, what string, limit time.Duration, met func() (bool, error)) error {
	return m.cluster.await(ctx, what, limit, met, m.process)
}

// awaitState waits until so many jobs of the namespace are in the state.
func (m *manager) awaitState(ctx context.Context, state mlv1.State, jobs int) error {
	var last map[mlv1.State]int
	asked := time.Time{}
	return m.await(ctx, fmt.Sprintf("%d jobs are %s", jobs, state), 10*time.Minute, func() (bool, error) {
		if time.Since(asked) < time.Second { // listing them is work for the API server
			return false, nil
		}
		count, err := states(ctx, m.cluster.client, namespace)
		if asked = time.Now(); err != nil {
			return false, err
		}
		last = count
		return count[state] >= jobs, fmt.Errorf("found %v", last)
	})
}

// settle waits until the manager has nothing to do and returns the processor time that it has used.
func (m *manager) settle(ctx context.Context) (time.Duration, error) {
	used, err := m.cpu()
	if err != nil {
		return 0, err
	}
	asked := time.Now()
	err = m.await(ctx, "the manager rests", 2*time.Minute, func() (bool, error) {
		if time.Since(asked) < 2*time.Second {
			return false, nil
		}
		now, err := m.cpu()
		rests := now-used <= 2*clockTick
		used, asked = now, time.Now()
		return rests, err
	})
	return used, err
}

// counter is the sum of a counter's series with the label, from the manager's metrics.
func (m *manager) counter(ctx context.Context, name, label, value string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.metrics, nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, metric := range families[name].GetMetric() {
		if hasLabel(metric, label, value) {
			sum += metric.GetCounter().GetValue()
		}
	}
	return sum, nil
}

func hasLabel(metric *dto.Metric, name, value string) bool {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name && pair.GetValue() == value {
			return true
		}
	}
	return false
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
