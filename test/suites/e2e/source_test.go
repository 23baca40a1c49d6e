//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/gitserver"
	"github.com/dcnlab/spot-training-operator/test/harness/registry"
)

// public is a training script of another project, as it is (hack/training-examples).
func public(t *testing.T, path string) string {
	t.Helper()
	folder := os.Getenv("TRAINING_EXAMPLES")
	require.NotEmpty(t, folder, "make e2e downloads the scripts")
	text, err := os.ReadFile(filepath.Join(folder, "examples", "pytorch", path))
	require.NoError(t, err)
	return string(text)
}

// scriptOf makes a ConfigMap with a file.
func scriptOf(t *testing.T, ns, name, file, content string) *podtemplate.Source {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{file: content},
	}))
	return &podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: name}}
}

// coded is a job of two workers that runs a command in its code.
func coded(ns, name string, source *podtemplate.Source, command ...string) *mlv1.TrainingJob {
	job := digits(ns, name).obj()
	job.Spec.Checkpoint, job.Spec.Hyperparameters = nil, nil
	job.Spec.Source, job.Spec.Command = source, command
	return job
}

// says waits for the end of a job, and returns what each of its workers has written.
func says(t *testing.T, job *mlv1.TrainingJob) (done *mlv1.TrainingJob, words map[string]string) {
	t.Helper()
	done, words = completes(t, job), map[string]string{}
	for replica, pod := range workers(t, job) {
		words[replica] = log(t.Context(), &pod)
	}
	return done, words
}

// The script of another project runs on two workers, from a ConfigMap.
func TestAPublicScriptRunsFromAConfigMap(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	source := scriptOf(t, ns, "sendrecv", "dist_sendrecv.py", public(t, "smoke-dist/dist_sendrecv.py"))
	job := coded(ns, "sendrecv-configmap", source, "python3", "dist_sendrecv.py")
	require.NoError(t, cluster.Create(t.Context(), job))
	done, words := says(t, job)
	assert.Contains(t, words["0"], "Result from worker 1")
	assert.Equal(t, "configmap://sendrecv", done.Status.Source.From)
	assert.EqualValues(t, 1, done.Status.Source.Files)
}

// Another one from a private repository. While its Secret is missing the job says so, and goes on when it is there; nothing that the operator
// writes has the password.
func TestAPublicScriptRunsFromAPrivateRepository(t *testing.T) {
	t.Parallel()
	ns, password := namespace(t), "planted-"+rand.String(20)
	repository := gitserver.New(t, listenOnNode(t), "bob", password)
	require.NoError(t, os.MkdirAll(filepath.Join(repository.Folder, "cpu-demo"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(repository.Folder, "cpu-demo", "demo.py"), []byte(public(t, "cpu-demo/demo.py")), 0o600))
	commit := repository.Commit(t)
	job := coded(ns, "allreduce-git", &podtemplate.Source{Git: &podtemplate.GitSource{
		URL: repository.URL, Commit: commit, Path: "cpu-demo", SecretRef: &podtemplate.SecretReference{Name: "git"},
	}}, "python3", "demo.py")
	require.NoError(t, cluster.Create(t.Context(), job))
	refused := reaches(t, job, "its Secret is missed", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.SourceAccessDenied })
	assert.Contains(t, refused.Status.FailureReason, "there is no Secret git")
	assert.Equal(t, refused.Status.RestartCount, refused.Status.DisruptionCount, "it is no failure of the training")

	require.NoError(t, cluster.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "git"},
		StringData: map[string]string{"username": "bob", "password": password, "ca.crt": repository.CA},
	}))
	done, words := says(t, job)
	for replica, text := range words {
		assert.Contains(t, text, "world_size 2 result", replica)
	}
	assert.Equal(t, commit, done.Status.Source.Revision)
	assert.NotContains(t, managerLogs(t), password)
	for _, pod := range workers(t, job) {
		for _, status := range pod.Status.InitContainerStatuses {
			require.NotNil(t, status.State.Terminated)
			assert.NotContains(t, status.State.Terminated.Message, password)
		}
	}
}

// torchrun starts a third one, from an artifact of a private registry.
func TestAPublicScriptRunsFromARegistry(t *testing.T) {
	t.Parallel()
	ns, password := namespace(t), "planted-"+rand.String(20)
	private := registry.StartPrivate(t, listenOnNode(t), "bob", password)
	reference := private.File(t, "team/echo", "echo.py", []byte(public(t, "elastic/echo/echo.py")))
	require.NoError(t, cluster.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "registry"},
		StringData: map[string]string{
			corev1.DockerConfigJsonKey: `{"auths": {"` + private.Address + `": {"username": "bob", "password": "` + password + `"}}}`, "ca.crt": private.CA,
		},
	}))
	job := coded(ns, "echo-torchrun", &podtemplate.Source{
		OCI:       &podtemplate.OCISource{Reference: reference, SecretRef: &podtemplate.SecretReference{Name: "registry"}},
		MountPath: "/app",
	}, "torchrun", "echo.py")
	require.NoError(t, cluster.Create(t.Context(), job))
	done, words := says(t, job)
	assert.Contains(t, words["1"], "rank=1, world_size = 2")
	assert.Equal(t, "oci://"+reference, done.Status.Source.From)
}

// The code of the first start is that of every start.
func TestAJobWhoseCodeChangedFails(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	job := coded(ns, "source-changed", scriptOf(t, ns, "script", "run.sh", running), "sh", "run.sh")
	job.Spec.NumWorkers = 1
	require.NoError(t, cluster.Create(t.Context(), job))
	first := reaches(t, job, "it runs", inState(mlv1.StateRunning))
	require.NotNil(t, first.Status.Source)

	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "script"}, Data: map[string]string{"run.sh": "exit 0"}}
	require.NoError(t, cluster.Update(t.Context(), other))
	pod := workers(t, job)["0"]
	require.NoError(t, cluster.Delete(t.Context(), &pod))
	failed := reaches(t, job, "it is Failed", inState(mlv1.StateFailed))
	assert.Equal(t, reasons.SourceChanged, failed.Status.Reason)
	assert.Contains(t, failed.Status.FailureReason, first.Status.Source.Digest)
	assert.Equal(t, first.Status.Source, failed.Status.Source)
}

// An AIJob, and a stage of a workflow, find their code where they want it, and may write beside it.
func TestAIJobsAndStagesHaveTheirCode(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	source := scriptOf(t, ns, "check", "check.py", `
import os, pathlib
assert os.getcwd() == "/workspace/here/code", os.getcwd()
pathlib.Path("written").write_text("beside the code")
pathlib.Path("../data").mkdir()
`)
	source.MountPath = "/workspace/here/code"
	job := pythonJob(t, ns, "coded", "").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Command, s.Source = []string{"python3", "check.py"}, source
	}).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), job))
	require.NoError(t, cluster.Create(t.Context(), &aiplatformv1alpha1.Agent{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "coded"},
		Spec:       aiplatformv1alpha1.AgentSpec{Image: workerImage(t), Command: []string{"python3", "check.py"}, Source: source},
	}))
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "coded"}}
	workflow.Spec.Stages = []aiplatformv1alpha1.Stage{{Name: "check", Agent: "coded"}}
	require.NoError(t, cluster.Create(t.Context(), workflow))

	awaitAIJob(t, job, aiplatformv1alpha1.AIJobSucceeded)
	assert.Equal(t, "configmap://check", job.Status.Source.From)
	assert.True(t, strings.HasPrefix(job.Status.Source.Digest, "sha256:"))
	ends(t, workflow, aiplatformv1alpha1.WorkflowSucceeded)

	missing := pythonJob(t, ns, "missing", "").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Source = &podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: "missing"}}
	}).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), missing))
	eventually(t, "it is told that there is no ConfigMap", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(missing), missing)
		return missing.Status.Reason == reasons.SourceNotFound, err
	})
	assert.Equal(t, aiplatformv1alpha1.AIJobRetrying, missing.Status.Phase)
	assert.Contains(t, missing.Status.Message, "spec.source.configMap.name: there is no ConfigMap missing")
	assert.Zero(t, missing.Status.RetryCount)
}

// What the first page of the guide says trains the script that it shows.
func TestTheQuickstartTrainsAScript(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	page, err := os.ReadFile("../../../docs/guide/quickstart.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Train your own script\n")
	require.True(t, found)
	block := func(language string) string {
		_, rest, found := strings.Cut(section, "```"+language+"\n")
		require.True(t, found, language)
		text, _, _ := strings.Cut(rest, "```\n")
		return text
	}
	require.Equal(t, "kubectl create configmap my-script --from-file=train.py\n", block("sh"))
	scriptOf(t, ns, "my-script", "train.py", block("python"))
	var job mlv1.TrainingJob
	require.NoError(t, yaml.UnmarshalStrict([]byte(block("yaml")), &job))
	job.Namespace = ns
	job.Spec.Resources.Requests = digits(ns, "small").obj().Spec.Resources.Requests
	require.NoError(t, cluster.Create(t.Context(), &job))
	_, words := says(t, &job)
	loss := func(epoch string) float64 {
		_, after, found := strings.Cut(words["0"], "epoch "+epoch+": loss ")
		require.True(t, found, words["0"])
		value, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
		require.NoError(t, err)
		return value
	}
	assert.Less(t, loss("19"), loss("0")/2, "it has learned")
}
