//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// epochsLeft is the metric of TrainingJobs that serveEpochsLeft serves.
const epochsLeft = "training_epochs_left"

const customMetrics = "/apis/custom.metrics.k8s.io/v1beta2"

// serveEpochsLeft serves, for as long as the test runs, how many epochs a TrainingJob still has to train, by its status.
func serveEpochsLeft(t *testing.T) {
	t.Helper()
	serveMetrics(t, "custom.metrics.k8s.io", "v1beta2", answerMetrics)
}

// serveMetrics registers a small server of a metrics API, which autoscalers ask, for as long as the test runs.
func serveMetrics(t *testing.T, group, version string, answer http.HandlerFunc) {
	t.Helper()
	if _, err := cluster.typed.Discovery().ServerResourcesForGroupVersion(group + "/" + version); err == nil {
		t.Skipf("the cluster serves %s of its own", group)
	}
	listener := listenOnNode(t)
	server := httptest.NewUnstartedServer(answer)
	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)

	ns := namespace(t)
	meta := metav1.ObjectMeta{Namespace: ns, Name: "metrics"}
	at := listener.Addr().(*net.TCPAddr)
	require.NoError(t, cluster.Create(t.Context(), &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}}},
	}))
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	require.NoError(t, cluster.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.IP.String()}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(int32(at.Port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}))
	registration := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": version + "." + group},
		"spec": map[string]any{
			"group": group, "version": version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": ns, "name": meta.Name, "port": int64(443)},
		},
	}}
	require.NoError(t, cluster.Create(t.Context(), registration))
	t.Cleanup(func() {
		_ = cluster.Delete(context.WithoutCancel(t.Context()), registration)
	})
}

// listenOnNode listens where pods and the API server reach it. A test that runs on no node of the cluster is skipped.
func listenOnNode(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(nodeAddress(t), "0"))
	if err != nil {
		t.Skipf("the cluster could not reach this test, which runs on none of its nodes: %v", err)
	}
	return listener
}

// nodeAddress is the address of a node, at which a server on that machine is reached.
func nodeAddress(t *testing.T) string {
	t.Helper()
	var nodes corev1.NodeList
	require.NoError(t, cluster.List(t.Context(), &nodes))
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				return address.Address
			}
		}
	}
	require.Fail(t, "no node has an address")
	return ""
}

// answerMetrics serves <customMetrics>/namespaces/NS/trainingjobs.ml.example.com/NAME/METRIC.
func answerMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	reply := func(document map[string]any) { _ = json.NewEncoder(w).Encode(document) }
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, customMetrics+"/namespaces/"), "/")
	if r.URL.Path == customMetrics {
		reply(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "custom.metrics.k8s.io/v1beta2", "resources": []any{
			map[string]any{"name": "trainingjobs.ml.example.com/" + epochsLeft, "namespaced": true, "kind": "MetricValueList", "verbs": []string{"get"}},
		}})
		return
	}
	if len(parts) != 4 || parts[1] != "trainingjobs.ml.example.com" || parts[3] != epochsLeft {
		http.NotFound(w, r)
		return
	}
	var job mlv1.TrainingJob
	if err := cluster.Get(r.Context(), client.ObjectKey{Namespace: parts[0], Name: parts[2]}, &job); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	reply(map[string]any{"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": map[string]any{}, "items": []any{map[string]any{
		"describedObject": map[string]any{"kind": "TrainingJob", "apiVersion": "ml.example.com/v1", "namespace": job.Namespace, "name": job.Name},
		"metric":          map[string]any{"name": epochsLeft},
		"timestamp":       time.Now().UTC().Format(time.RFC3339),
		"value":           strconv.Itoa(int(job.Status.TotalEpochs - job.Status.CurrentEpoch)),
	}}})
}
