//go:build e2e

// Package e2e tests the product as it is deployed, on a live cluster: real pods, real training. `make e2e` runs it.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	operatorNamespace = "spot-training-operator-system"
	poll              = 200 * time.Millisecond
	// patience is how long a step may take on a slow machine before the test gives up.
	patience = 4 * time.Minute
)

// cluster is the connection to the live cluster, shared by all tests.
var cluster struct {
	client.Client

	config *rest.Config
	typed  kubernetes.Interface
}

func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "end-to-end tests need a cluster with the operator in it (make e2e brings both):", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mlv1.AddToScheme, aiplatformv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	cluster.config = config
	if cluster.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	cluster.typed, err = kubernetes.NewForConfig(config)
	return err
}

// namespace makes a namespace that enforces Pod Security restricted, and deletes it after the test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	require.NoError(t, cluster.Create(t.Context(), ns))
	t.Cleanup(func() {
		if t.Failed() {
			dump(t, ns.Name)
		}
		_ = cluster.Delete(context.WithoutCancel(t.Context()), ns)
	})
	return ns.Name
}

// dump shows what is known of a failed test's jobs.
func dump(t *testing.T, ns string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	var jobs mlv1.TrainingJobList
	_ = cluster.List(ctx, &jobs, client.InNamespace(ns))
	for _, job := range jobs.Items {
		t.Logf("TrainingJob %s: %+v", job.Name, job.Status)
	}
	var pods corev1.PodList
	_ = cluster.List(ctx, &pods, client.InNamespace(ns))
	for _, pod := range pods.Items {
		t.Logf("pod %s: %s %+v\n%s", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses, log(ctx, &pod))
	}
	events, err := cluster.typed.CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, event := range events.Items {
			t.Logf("event %s %s/%s: %s", event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Message)
		}
	}
}

// reaches waits until the job is in a state that the check accepts, and returns it. It fails at once when the job has
// failed although that is not what is waited for.
func reaches(t *testing.T, job *mlv1.TrainingJob, what string, check func(*mlv1.TrainingJob) bool) *mlv1.TrainingJob {
	t.Helper()
	var last mlv1.TrainingJob
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(ctx context.Context) (bool, error) {
		if err := cluster.Get(ctx, client.ObjectKeyFromObject(job), &last); err != nil {
			return false, err
		}
		if check(&last) {
			return true, nil
		}
		if last.Status.State == mlv1.StateFailed {
			return false, fmt.Errorf("the job failed: %s: %s", last.Status.Reason, last.Status.FailureReason)
		}
		return false, nil
	})
	require.NoError(t, err, "waiting until %s; the job is %s (%s), progress %s", what, last.Status.State, last.Status.Reason, last.Status.Progress)
	return &last
}

// completes waits until the job is Completed, and has its workers train at full speed from now on.
func completes(t *testing.T, job *mlv1.TrainingJob) *mlv1.TrainingJob {
	t.Helper()
	paced := slices.ContainsFunc(job.Spec.Env, func(v corev1.EnvVar) bool { return v.Name == "STEP_DELAY_UNTIL" })
	told := map[types.UID]bool{}
	return reaches(t, job, "it is Completed", func(job *mlv1.TrainingJob) bool {
		if !paced || job.Status.State != mlv1.StateRunning {
			return job.Status.State == mlv1.StateCompleted
		}
		var pods corev1.PodList
		require.NoError(t, cluster.List(t.Context(), &pods, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name}))
		for _, pod := range pods.Items {
			if pod.Labels[mlv1.LabelReplicaID] != "" && pod.Status.Phase == corev1.PodRunning && !told[pod.UID] {
				// A worker may end meanwhile.
				_, err := tryToExecute(t, &pod, "touch "+fullSpeed)
				told[pod.UID] = err == nil
			}
		}
		return false
	})
}

func inState(state mlv1.State) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool { return job.Status.State == state }
}

// eventually waits until the check holds.
func eventually(t *testing.T, what string, check func(context.Context) (bool, error)) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), poll, patience, true, check), "waiting until %s", what)
}

// workers returns the pods of a job's present attempt, by replica.
func workers(t *testing.T, job *mlv1.TrainingJob) map[string]corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name}))
	attempt := child(t, job, &batchv1.Job{}, "-training")
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		if metav1.IsControlledBy(&pod, attempt) {
			pods[pod.Labels[mlv1.LabelReplicaID]] = pod
		}
	}
	return pods
}

// child reads the child of the job with the suffix.
func child[T client.Object](t *testing.T, job *mlv1.TrainingJob, into T, suffix string) T {
	t.Helper()
	key := client.ObjectKey{Namespace: job.Namespace, Name: job.Name + suffix}
	require.NoError(t, cluster.Get(t.Context(), key, into))
	return into
}

func log(ctx context.Context, pod *corev1.Pod) string {
	stream, err := cluster.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// execute runs a shell command in a pod's first container.
func execute(t *testing.T, pod *corev1.Pod, script string) string {
	t.Helper()
	out, err := tryToExecute(t, pod, script)
	require.NoError(t, err)
	return out
}

func tryToExecute(t *testing.T, pod *corev1.Pod, script string) (string, error) {
	t.Helper()
	request := cluster.typed.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: pod.Spec.Containers[0].Name, Command: []string{"/bin/sh", "-c", script}, Stdout: true, Stderr: true,
	}, clientgoscheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(cluster.config, "POST", request.URL())
	require.NoError(t, err)
	var out, errs bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	if err != nil {
		return "", fmt.Errorf("run %q in %s: %w: %s", script, pod.Name, err, errs.String())
	}
	return strings.TrimSpace(out.String()), nil
}
