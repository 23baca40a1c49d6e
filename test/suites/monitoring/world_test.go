package monitoring_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

const (
	operatorNamespace = "spot-training-operator-system"
	jobNamespace      = "team-a"

	runningJob = "bert"
	failedJob  = "rnn"
)

// world is a real API server, the real manager and a Prometheus that scrapes it, with jobs in every state. The test
// plays the Job controller and the kubelets.
type world struct {
	k8s        client.Client
	prometheus *prometheus
	figures    int // port of the stand-in for the metrics server of replicas 0
}

func startWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	server := apiserver.Start(t, apiserver.OwnCRDs, apiserver.Flag("disable-admission-plugins", "ServiceAccount"))
	w := &world{figures: startWorker(t)}
	var err error
	w.k8s, err = client.New(server.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, name := range []string{operatorNamespace, jobNamespace} {
		require.NoError(t, w.k8s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	manager := w.startManager(t, server.Kubeconfig())
	w.prometheus = startPrometheus(t, manager, readRules(t).write(t, t.TempDir()))
	w.playPlatform(t)
	w.playJobs(t)
	return w
}

// startManager builds and starts the real program and returns the address of its metrics.
func (w *world) startManager(t *testing.T, kubeconfig []byte) string {
	t.Helper()
	folder := t.TempDir()
	program, config := operator.Program(t), filepath.Join(folder, "kubeconfig")
	require.NoError(t, os.WriteFile(config, kubeconfig, 0o600))
	metrics, probes, webhooks := freeAddress(t), freeAddress(t), freeAddress(t)
	_, port, err := net.SplitHostPort(webhooks)
	require.NoError(t, err)
	w.installWebhooks(t, webhooks)
	startProcess(t, program, []string{"KUBECONFIG=" + config, "POD_NAMESPACE=" + operatorNamespace},
		"manager", "--leader-elect", "--leader-election-namespace="+operatorNamespace,
		"--metrics-bind-address="+metrics, "--metrics-secure=false", "--health-probe-bind-address="+probes,
		"--webhook-cert-mode=self", "--webhook-cert-hosts=127.0.0.1", "--webhook-bind-host=127.0.0.1", "--webhook-port="+port,
		"--progress-interval=1s")
	eventually(t, "the manager is ready", func() bool { return answers("http://" + probes + "/readyz") })
	return metrics
}

// installWebhooks has the API server call the webhooks at a port of this machine.
func (w *world) installWebhooks(t *testing.T, address string) {
	t.Helper()
	file, err := os.Open(root + "/config/webhook/manifests.yaml")
	require.NoError(t, err)
	defer file.Close()
	documents := yaml.NewYAMLOrJSONDecoder(file, 4096)
	redirect := func(config *admissionregistrationv1.WebhookClientConfig) {
		config.URL, config.Service = ptr.To("https://"+address+*config.Service.Path), nil
	}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, documents.Decode(&mutating))
	for i := range mutating.Webhooks {
		redirect(&mutating.Webhooks[i].ClientConfig)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, documents.Decode(&validating))
	for i := range validating.Webhooks {
		redirect(&validating.Webhooks[i].ClientConfig)
	}
	for _, configuration := range []client.Object{&mutating, &validating} {
		configuration.SetName("spot-training-operator")
		require.NoError(t, w.k8s.Create(t.Context(), configuration))
	}
}

// playJobs brings jobs into every state. The first is seen by Prometheus before the others are there: the first sample
// of a counter is no increase.
func (w *world) playJobs(t *testing.T) {
	t.Helper()
	w.run(t, builders.TrainingJob(runningJob).Workers(2).GPUs(1).Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Monitoring.MetricsPort = int32(w.figures)
		s.Checkpoint.Interval = &metav1.Duration{Duration: time.Minute}
	}))
	eventually(t, "Prometheus has seen the first job run", func() bool {
		return w.prometheus.hasData(t, `trainingjob_time_to_running_seconds_count > 0`, true)
	})
	_, closed, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	deaf, err := strconv.Atoi(closed)
	require.NoError(t, err)
	w.run(t, builders.TrainingJob("deaf").Spec(func(s *mlv1.TrainingJobSpec) { s.Monitoring.MetricsPort = int32(deaf) }))
	w.create(t, builders.TrainingJob("gpt")) // its pods do not run
	for _, pod := range w.run(t, builders.TrainingJob(failedJob).RestartPolicy(mlv1.RestartNever)) {
		w.end(t, pod, 1)
	}
	w.await(t, failedJob, mlv1.StateFailed)
	for _, pod := range w.run(t, builders.TrainingJob("vit")) {
		w.end(t, pod, 0)
	}
	w.await(t, "vit", mlv1.StateCompleted)
	for _, pod := range w.run(t, builders.TrainingJob("lstm")) {
		w.end(t, pod, 1)
	}
	w.await(t, "lstm", mlv1.StateRestarting)
}

func (w *world) create(t *testing.T, job *builders.TrainingJobBuilder) *mlv1.TrainingJob {
	t.Helper()
	object := job.Namespace(jobNamespace).ToCreate()
	require.NoError(t, w.k8s.Create(t.Context(), object))
	return object
}

// run creates a job and has all its workers run.
func (w *world) run(t *testing.T, build *builders.TrainingJobBuilder) []*corev1.Pod {
	t.Helper()
	job := w.create(t, build)
	var workers batchv1.Job
	eventually(t, "the manager makes the workers of "+job.Name, func() bool {
		return w.k8s.Get(t.Context(), client.ObjectKey{Namespace: jobNamespace, Name: job.Name + "-training"}, &workers) == nil
	})
	var pods []*corev1.Pod
	for i := range *workers.Spec.Completions {
		index := strconv.Itoa(int(i))
		pod := &corev1.Pod{ObjectMeta: *workers.Spec.Template.ObjectMeta.DeepCopy(), Spec: *workers.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = jobNamespace, workers.Name+"-"+index
		pod.Labels[batchv1.JobCompletionIndexAnnotation], pod.Annotations[batchv1.JobCompletionIndexAnnotation] = index, index
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&workers, batchv1.SchemeGroupVersion.WithKind("Job"))}
		require.NoError(t, w.k8s.Create(t.Context(), pod))
		w.status(t, pod, func(status *corev1.PodStatus) {
			status.Phase, status.PodIP, status.PodIPs = corev1.PodRunning, "127.0.0.1", []corev1.PodIP{{IP: "127.0.0.1"}}
			status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		})
		pods = append(pods, pod)
	}
	w.await(t, job.Name, mlv1.StateRunning)
	return pods
}

func (w *world) end(t *testing.T, pod *corev1.Pod, code int32) {
	t.Helper()
	w.status(t, pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodSucceeded
		if code != 0 {
			status.Phase = corev1.PodFailed
		}
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}}
	})
}

func (w *world) status(t *testing.T, pod *corev1.Pod, change func(*corev1.PodStatus)) {
	t.Helper()
	before := pod.DeepCopy()
	change(&pod.Status)
	require.NoError(t, w.k8s.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
}

func (w *world) await(t *testing.T, name string, state mlv1.State) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %s", name, state), func() bool {
		var job mlv1.TrainingJob
		return w.k8s.Get(t.Context(), client.ObjectKey{Namespace: jobNamespace, Name: name}, &job) == nil && job.Status.State == state
	})
}

// startWorker answers in place of a replica 0, with other figures every time, and returns its port.
func startWorker(t *testing.T) int {
	t.Helper()
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		epoch := scrapes.Add(1)
		_, _ = fmt.Fprintf(answer, `training_epoch %d
training_epochs 1000
training_progress_ratio %g
training_loss %g
training_accuracy 0.5
training_gpu_utilization_percent 80
training_checkpoint_info{path="/checkpoints/bert/checkpoint-epoch-%d"} 1
training_checkpoint_epoch %d
training_checkpoint_size_bytes 4096
training_checkpoint_timestamp_seconds %d
`, epoch, float64(epoch)/1000, 1/float64(epoch), epoch, epoch, time.Now().Unix())
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// startProcess starts a program that ends with the test.
func startProcess(t *testing.T, program string, environment []string, arguments ...string) {
	t.Helper()
	command, log := exec.Command(program, arguments...), &output{}
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // it ends by a signal
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = command.Process.Kill()
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", filepath.Base(program), log)
		}
	})
}

// output can be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	require.Eventually(t, met, 3*time.Minute, 100*time.Millisecond, what)
}
