//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// scaledService is a job service of its own, of several replicas.
type scaledService struct {
	t                    *testing.T
	namespace, name, url string
	token                string
	client               *http.Client
}

const secretOfScaledService = "a secret of a test, which has more than 32 bytes"

func startScaledService(t *testing.T) *scaledService {
	t.Helper()
	database := stores.NewProxyOn(t, listenOnNode(t), postgres.Start(t).Address)
	queue := stores.NewProxyOn(t, listenOnNode(t), redis.Start(t).Address)
	s := &scaledService{t: t, namespace: namespace(t), name: "job-service", client: &http.Client{
		Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}, // so that each replica gets some
	}}
	var err error
	s.token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "load", "scope": "jobs:read jobs:write tasks:work", "namespaces": []string{"*"}, "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString([]byte(secretOfScaledService))
	require.NoError(t, err)

	var product appsv1.Deployment
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: jobServiceName}, &product))
	pod := product.Spec.Template.Spec
	pod.ServiceAccountName, pod.DeprecatedServiceAccount = "", ""
	pod.Volumes = pod.Volumes[:1]
	container := &pod.Containers[0]
	container.VolumeMounts = container.VolumeMounts[:1]
	container.Args = []string{
		"job-service", "--kubernetes=false", "--data-dir=/data", "--shutdown-delay=5s", "--max-open-jobs=0", "--max-open-jobs-per-user=0",
		"--rate-limit-create=0", "--rate-limit-jobs=0", "--rate-limit-list=0", "--rate-limit-other=0",
	}
	container.EnvFrom = nil
	container.Env = []corev1.EnvVar{
		{Name: "DATABASE_URL", Value: "postgres://postgres@" + database.Address + "/postgres?sslmode=disable"},
		{Name: "REDIS_URL", Value: "redis://" + queue.Address + "/0"},
		{Name: "JOB_SERVICE_HMAC_SECRET", Value: secretOfScaledService},
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		probe.HTTPGet.Scheme = corev1.URISchemeHTTP
	}
	labels := map[string]string{"app": s.name}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 8000, TargetPort: intstr.FromString("http")}}},
	}
	require.NoError(t, cluster.Create(t.Context(), service))
	s.url = "http://" + net.JoinHostPort(service.Spec.ClusterIP, "8000") + "/api/v1"
	require.NoError(t, cluster.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}))
	return s
}

// ask says whether the service did what it was asked to. Else nothing is known.
func (s *scaledService) ask(ctx context.Context, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %d: %s", method, path, response.StatusCode, text)
	}
	return json.Unmarshal(text, answer)
}

// load submits jobs and does them, and knows what was acknowledged.
type load struct {
	*scaledService

	mu       sync.Mutex
	accepted map[string]bool
	finished map[string]int
}

func (l *load) submit(ctx context.Context, n int) {
	batch := make([]map[string]any, n)
	for i := range batch {
		batch[i] = map[string]any{"job_type": "simulation", "queue": "load", "config": map[string]any{"number": strconv.Itoa(i)}}
	}
	var answer struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	if l.ask(ctx, http.MethodPost, "/jobs/batch", map[string]any{"jobs": batch}, &answer) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, item := range answer.Items {
		l.accepted[item.ID] = true
	}
}

// work does the jobs that wait, until the context ends.
func (l *load) work(ctx context.Context, worker string) {
	for ctx.Err() == nil {
		var leased struct {
			Tasks []struct {
				ID    string `json:"id"`
				Token int64  `json:"lease_token"`
			} `json:"tasks"`
		}
		request := map[string]any{"queue": "load", "worker_id": worker, "max_tasks": 20, "wait_seconds": 1}
		_ = l.ask(ctx, http.MethodPost, "/tasks/lease", request, &leased)
		for _, task := range leased.Tasks {
			done := map[string]any{"lease_token": task.Token, "result": map[string]any{}}
			for range 20 { // to say it again is no error
				if l.ask(ctx, http.MethodPost, "/tasks/"+task.ID+"/complete", done, &map[string]any{}) == nil {
					l.mu.Lock()
					l.finished[task.ID]++
					l.mu.Unlock()
					break
				}
			}
		}
	}
}

// depth is how many jobs wait.
func (s *scaledService) depth(ctx context.Context) (int, error) {
	var answer struct {
		Total int `json:"total"`
	}
	err := s.ask(ctx, http.MethodGet, "/jobs/?limit=1&status=queued", nil, &answer)
	return answer.Total, err
}

const queueDepth = "aijob_queue_depth"

// serveDepth serves the external metric that an adapter makes of the service's own.
func (s *scaledService) serveDepth() {
	const api = "/apis/external.metrics.k8s.io/v1beta1"
	serveMetrics(s.t, "external.metrics.k8s.io", "v1beta1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reply := func(document map[string]any) { _ = json.NewEncoder(w).Encode(document) }
		if r.URL.Path == api {
			reply(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1", "resources": []any{
				map[string]any{"name": queueDepth, "namespaced": true, "kind": "ExternalMetricValueList", "verbs": []string{"get"}},
			}})
			return
		}
		depth, err := s.depth(r.Context())
		if r.URL.Path != api+"/namespaces/"+s.namespace+"/"+queueDepth || err != nil {
			http.NotFound(w, r)
			return
		}
		reply(map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": map[string]any{}, "items": []any{
			map[string]any{
				"metricName": queueDepth, "metricLabels": map[string]any{"queue": "load"}, "timestamp": time.Now().UTC().Format(time.RFC3339), "value": strconv.Itoa(depth),
			},
		}})
	})
}

func TestTheJobServiceIsScaledUnderLoadWithNothingLost(t *testing.T) {
	t.Parallel()
	s := startScaledService(t)
	scaledTo := func(n int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d replicas are ready", n), func(ctx context.Context) (bool, error) {
			var d appsv1.Deployment
			err := cluster.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.name}, &d)
			return d.Status.ReadyReplicas == n && d.Status.Replicas == n, err
		})
	}
	scaledTo(1)
	s.serveDepth()
	require.NoError(t, cluster.Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: s.name},
			MinReplicas:    ptr.To[int32](1), MaxReplicas: 3,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ExternalMetricSourceType,
				External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: queueDepth},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("100"))},
				},
			}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0)}},
		},
	}))

	l := &load{scaledService: s, accepted: map[string]bool{}, finished: map[string]int{}}
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	for len(l.accepted) < 1000 {
		l.submit(ctx, 100)
	}
	scaledTo(3)
	for i := range 4 {
		all.Go(func() { l.work(ctx, fmt.Sprintf("worker-%d", i)) })
	}
	submitting, enough := context.WithCancel(ctx)
	var submitters sync.WaitGroup
	submitters.Go(func() { // a little goes on while replicas end
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for submitting.Err() == nil {
			l.submit(ctx, 2)
			<-pace.C
		}
	})
	scaledTo(1)
	enough()
	submitters.Wait()

	accepted := len(l.accepted)
	assert.Greater(t, accepted, 1000, "it takes jobs all the time")
	eventually(t, "all jobs have ended", func(context.Context) (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		left := 0
		for id := range l.accepted {
			if l.finished[id] == 0 {
				left++
			}
		}
		return left == 0, nil
	})
	end()
	all.Wait()
	for id, times := range l.finished {
		assert.Equal(t, 1, times, "job %s was done more than once", id)
	}
	var succeeded struct {
		Total int `json:"total"`
	}
	require.NoError(t, s.ask(t.Context(), http.MethodGet, "/jobs/?limit=1&status=succeeded", nil, &succeeded))
	assert.GreaterOrEqual(t, succeeded.Total, accepted)
}
