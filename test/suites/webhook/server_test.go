package webhook_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancejob"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancevm"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	agentworkflowwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/agentworkflow"
	aijobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/aijob"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
	spotwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/spot"
	trainingjobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/trainingjob"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const (
	manifests = root + "/config/webhook/manifests.yaml"
	patience  = 30 * time.Second
)

var settings = build.Settings{WorkerImage: "registry.example.com/worker:1", AgentImage: "registry.example.com/manager:1"}

// documents are the YAML documents of a file.
func documents(data []byte) [][]byte {
	var list [][]byte
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		if document = bytes.TrimPrefix(document, []byte("---\n")); len(bytes.TrimSpace(document)) > 0 {
			list = append(list, document)
		}
	}
	return list
}

// install installs the webhook configurations of config/webhook for one test, and returns where the server is to be.
func install(t testing.TB) *envtest.WebhookInstallOptions {
	t.Helper()
	options := &envtest.WebhookInstallOptions{Paths: []string{manifests}}
	require.NoError(t, options.Install(restConfig))
	t.Cleanup(func() {
		uninstall(t)
		require.NoError(t, options.Cleanup())
	})
	return options
}

func uninstall(t testing.TB) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: configuration}
	for _, object := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta},
	} {
		require.NoError(t, client.IgnoreNotFound(k8s.Delete(context.Background(), object)))
	}
}

// serve runs the webhooks with the operator's permissions until the test ends or stop is called, and waits until the
// API server calls them.
func serve(t testing.TB, at *envtest.WebhookInstallOptions) (stop func()) {
	t.Helper()
	asOperator := rest.CopyConfig(restConfig)
	asOperator.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	reviews, err := kubernetes.NewForConfig(asOperator)
	require.NoError(t, err)
	asker, err := review.NewAsker(asOperator, scheme, reviews)
	require.NoError(t, err)
	server := webhook.NewServer(webhook.Options{Host: at.LocalServingHost, Port: at.LocalServingPort, CertDir: at.LocalServingCertDir})
	cluster := review.Cluster{
		Asker: asker,
		// The server of the tests is called by the API server alone.
		FromAPIServer: func(*http.Request) bool { return true },
	}
	trainingjobwebhook.Register(server, scheme, trainingjobwebhook.Options{
		DefaultImage: settings.DefaultImage,
		Check:        build.Check,
		Children:     func(job *mlv1.TrainingJob) []client.Object { return trainingjob.Children(job, settings) },
		Cluster:      cluster,
	})
	spotwebhook.Register(server, scheme, spotwebhook.Options{
		Replica: spotinstancejob.Replica, NotAllowed: spotinstancevm.NotAllowed, Cluster: cluster,
		TakesCheckpoints: func(ctx context.Context) (bool, error) {
			return checkpointbackup.IsServed(ctx, reviews.Discovery().RESTClient())
		},
	})
	aijobwebhook.Register(server, []string{jobServiceUser})
	agentworkflowwebhook.Register(server, scheme)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	awaitWebhooks(t, namespace(t))
	return stop
}

// awaitWebhooks waits until the API server, which learns of configurations a little later, calls both webhooks.
func awaitWebhooks(t testing.TB, ns string) {
	t.Helper()
	said, asUser := user(t)
	eventually(t, "the API server calls the webhooks", func() bool {
		job := builders.TrainingJob("probe").Namespace(ns).Spec(func(s *mlv1.TrainingJobSpec) {
			s.Env = []corev1.EnvVar{{Name: "API_KEY", Value: "a warning that takes no look at the cluster"}}
		}).ToCreate()
		return asUser.Create(t.Context(), job, client.DryRunAll) == nil && job.Spec.Image != "" && len(said()) > 0
	})
}

// user is a client whose warnings can be read.
func user(t testing.TB) (said func() []string, asUser client.Client) {
	t.Helper()
	heard := &warnings{}
	config := rest.CopyConfig(restConfig)
	config.WarningHandler = heard
	asUser, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return heard.take, asUser
}

type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

// take returns what was said since the last time.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.list
	w.list = nil
	return list
}

func eventually(t testing.TB, what string, met func() bool) {
	t.Helper()
	require.Eventually(t, met, patience, 50*time.Millisecond, what)
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func readFile(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return data
}
