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

// serveEpochsLeft registers a small server of the custom metrics API, which autoscalers ask, for as long as the test
// runs. It says of a TrainingJob how many epochs it still has to train, by its status.
func serveEpochsLeft(t *testing.T) {
	t.Helper()
	if _, err := cluster.typed.Discovery().ServerResourcesForGroupVersion("custom.metrics.k8s.io/v1beta2"); err == nil {
		t.Skip("the cluster serves custom metrics of its own")
	}
	address := nodeAddress(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Skipf("the API server could not reach this test, which runs on no node of the cluster: %v", err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(answerMetrics))
	_ = server.Listener.Close()
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)

	ns := namespace(t)
	meta := metav1.ObjectMeta{Namespace: ns, Name: "epochs-left"}
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	require.NoError(t, cluster.Create(t.Context(), &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}}},
	}))
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	require.NoError(t, cluster.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To(port), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}))
	registration := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta2.custom.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "custom.metrics.k8s.io", "version": "v1beta2", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": ns, "name": meta.Name, "port": int64(443)},
		},
	}}
	require.NoError(t, cluster.Create(t.Context(), registration))
	t.Cleanup(func() {
		_ = cluster.Delete(context.WithoutCancel(t.Context()), registration)
	})
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
