//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const jobServiceName = "spot-training-operator-job-service"

// pooledJobs submits jobs to the job service as a user of one namespace.
type pooledJobs struct {
	t         *testing.T
	namespace string
	url       string
	client    *http.Client
	token     string
}

// newPooledJobs has a new namespace.
func newPooledJobs(t *testing.T) *pooledJobs {
	t.Helper()
	return pooledJobsIn(t, namespace(t))
}

// pooledJobsIn has a token of a ServiceAccount that may do with the AIJobs of a namespace what a user may.
func pooledJobsIn(t *testing.T, ns string) *pooledJobs {
	t.Helper()
	p := &pooledJobs{t: t, namespace: ns}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "submitter"}}
	require.NoError(t, cluster.Create(t.Context(), account))
	require.NoError(t, cluster.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "submitter"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"aiplatform.example.com"}, Resources: []string{"aijobs"}, Verbs: []string{"create", "get", "list", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		},
	}))
	require.NoError(t, cluster.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "submitter"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "submitter"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: p.namespace, Name: "submitter"}},
	}))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"job-service"}}}
	require.NoError(t, cluster.SubResource("token").Create(t.Context(), account, request))
	p.token = request.Status.Token
	p.url = "https://" + forwardTo(t, jobServiceName, 8000)
	var published corev1.ConfigMap
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: jobServiceName + "-ca"}, &published))
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM([]byte(published.Data["ca.crt"])))
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}}
	t.Cleanup(transport.CloseIdleConnections)
	p.client = &http.Client{Transport: transport}
	return p
}

// forwardTo opens a port of this machine to that of a pod of a Deployment of the operator's, until the test ends.
func forwardTo(t *testing.T, deployment string, port int) (address string) {
	t.Helper()
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: operatorNamespace, Name: deployment}
	var pod *corev1.Pod
	defer func() {
		if pod == nil {
			dump(t, operatorNamespace)
		}
	}()
	eventually(t, "a pod of "+deployment+" is ready", func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, key, &d); err != nil {
			return false, err
		}
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
		for i := range pods.Items {
			for _, c := range pods.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pods.Items[i].DeletionTimestamp == nil {
					pod = &pods.Items[i]
				}
			}
		}
		return pod != nil, err
	})
	transport, upgrader, err := spdy.RoundTripperFor(cluster.config)
	require.NoError(t, err)
	target := cluster.typed.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	t.Cleanup(func() { close(stop) })
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err, "forward a port to %s", pod.Name)
	}
	ports, err := forwarder.GetPorts()
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

func (p *pooledJobs) ask(ctx context.Context, method, path string, body any) (status int, answer map[string]any) {
	p.t.Helper()
	text, err := json.Marshal(body)
	require.NoError(p.t, err)
	request, err := http.NewRequestWithContext(ctx, method, p.url+"/api/v1"+path, bytes.NewReader(text))
	require.NoError(p.t, err)
	request.Header.Set("Authorization", "Bearer "+p.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	require.NoError(p.t, json.NewDecoder(response.Body).Decode(&answer))
	return response.StatusCode, answer
}

func (p *pooledJobs) submit(queue, jobType string, config map[string]any) (id string) {
	p.t.Helper()
	status, answer := p.ask(p.t.Context(), http.MethodPost, "/jobs/", map[string]any{
		"job_type": jobType, "queue": queue, "namespace": p.namespace, "config": config,
	})
	require.Equal(p.t, http.StatusCreated, status, "%v", answer)
	return answer["id"].(string)
}

// ends waits until a job has ended, and returns it.
func (p *pooledJobs) ends(id, want string) map[string]any {
	p.t.Helper()
	var job map[string]any
	eventually(p.t, "job "+id+" is "+want, func(ctx context.Context) (bool, error) {
		status, answer := p.ask(ctx, http.MethodGet, "/jobs/"+id, nil)
		if status != http.StatusOK {
			return false, fmt.Errorf("%d: %v", status, answer)
		}
		job = answer
		switch job["status"] {
		case want:
			return true, nil
		case "succeeded", "failed", "dead_letter", "cancelled":
			return false, fmt.Errorf("it is %v: %v", job["status"], job["error"])
		}
		return false, nil
	})
	return job
}

// workersQueue makes an AIJobQueue with workers in the operator's namespace.
func workersQueue(t *testing.T, name string, workers map[string]any) *unstructured.Unstructured {
	t.Helper()
	queue := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "aiplatform.example.com/v1alpha1", "kind": "AIJobQueue", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"workers": workers},
	}}
	require.NoError(t, cluster.Create(t.Context(), queue))
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			_ = cluster.Get(ctx, client.ObjectKeyFromObject(queue), queue)
			t.Logf("AIJobQueue %s: %v", name, queue.Object["status"])
			var pods corev1.PodList
			_ = cluster.List(ctx, &pods, client.MatchingLabels{"aiplatform.example.com/worker-pool": name})
			for i := range pods.Items {
				t.Logf("pod %s: %+v\n%s", pods.Items[i].Name, pods.Items[i].Status, log(ctx, &pods.Items[i]))
			}
		}
		_ = client.IgnoreNotFound(cluster.Delete(context.WithoutCancel(t.Context()), queue))
	})
	return queue
}

// workersAre waits until the condition WorkersReady has a reason.
func workersAre(t *testing.T, queue *unstructured.Unstructured, reason string) {
	t.Helper()
	var last string
	eventually(t, "the workers of "+queue.GetName()+" are "+reason, func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(queue), queue); err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(queue.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "WorkersReady" {
				last = fmt.Sprint(c["reason"], ": ", c["message"])
				return c["reason"] == reason, err
			}
		}
		return false, err
	})
	t.Log(last)
}

// From a call of the REST interface to the result: the pool comes up from none, does jobs of every type, and goes.
func TestPooledWorkersComeForTasksOfAllTypesAndGo(t *testing.T) {
	t.Parallel()
	p := newPooledJobs(t)
	queue := workersQueue(t, p.namespace+"-pool", map[string]any{
		"maxReplicas": 1, "tasksPerWorker": 10, "idleSeconds": 5,
		"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "256Mi"}, "limits": map[string]any{"memory": "1536Mi"}},
		"volumes":   []any{map[string]any{"name": "scratch", "emptyDir": map[string]any{}}},
		"podTemplate": map[string]any{
			"labels": map[string]any{"team": "vision"},
			"initContainers": []any{map[string]any{
				"name": "prepare", "image": workerImage(t), "command": []any{"touch", "/scratch/prepared"},
				"volumeMounts": []any{map[string]any{"name": "scratch", "mountPath": "/scratch"}},
			}},
		},
	})
	workersAre(t, queue, "ScaledToZero")

	name := queue.GetName()
	inference := p.submit(name, "inference", map[string]any{"indices": []int{0, 1, 2, 3, 4}})
	evaluation := p.submit(name, "evaluation", map[string]any{})
	simulation := p.submit(name, "simulation", map[string]any{"sensor": "temperature", "duration_seconds": 3600, "seed": 3})
	training := p.submit(name, "training", map[string]any{"model": "mlp", "epochs": 3, "hyperparameters": map[string]any{"learningRate": 0.01}})
	wrong := p.submit(name, "simulation", map[string]any{"sensor": "nose"})

	job := p.ends(inference, "succeeded")
	assert.Contains(t, job["worker_id"], name+"-workers-", "by a pod of the pool")
	var pods corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &pods, client.InNamespace(operatorNamespace),
		client.MatchingLabels{"aiplatform.example.com/worker-pool": name, "team": "vision"}))
	require.NotEmpty(t, pods.Items, "its pods have the settings of the queue")
	assert.Equal(t, "prepare", pods.Items[0].Status.InitContainerStatuses[0].Name)
	result := job["result"].(map[string]any)
	assert.Equal(t, result["labels"], result["predictions"])
	assert.Greater(t, p.ends(evaluation, "succeeded")["result"].(map[string]any)["accuracy"], 0.97)
	assert.EqualValues(t, 3600, p.ends(simulation, "succeeded")["result"].(map[string]any)["readings"])
	assert.Greater(t, p.ends(training, "succeeded")["result"].(map[string]any)["metrics"].(map[string]any)["accuracy"], 0.8)
	assert.Contains(t, p.ends(wrong, "failed")["error"], "config.sensor: is 'nose'")

	workersAre(t, queue, "ScaledToZero")
	eventually(t, "no pod of the workers is left", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"aiplatform.example.com/worker-pool": name})
		return len(pods.Items) == 0, err
	})
	again := p.submit(name, "inference", map[string]any{"indices": []int{7}})
	p.ends(again, "succeeded")

	require.NoError(t, cluster.Delete(t.Context(), queue))
	for _, object := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name + "-workers"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-workers"}},
	} {
		eventually(t, "nothing of the workers is left", func(ctx context.Context) (bool, error) {
			err := cluster.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err) || meta.IsNoMatchError(err), client.IgnoreNotFound(err)
		})
	}
}

// What keeps workers from starting is told where the queue is.
func TestAWorkerImageThatDoesNotExistIsTold(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	queue := workersQueue(t, ns+"-pool", map[string]any{"image": "registry.example.com/missing/nothing:1", "minReplicas": 1, "namespace": ns})
	workersAre(t, queue, "ImagePullFailed")
}
