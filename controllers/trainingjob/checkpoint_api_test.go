package trainingjob

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// agentServer plays the checkpoint agent of replica 0.
type agentServer struct {
	mu     sync.Mutex
	answer report.Report
	asked  []string
}

// playAgent has the managers of the cluster find an agent.
func (c *cluster) playAgent(answer report.Report) *agentServer {
	c.t.Helper()
	a := &agentServer{answer: answer}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+report.StatusPath, func(response http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		_ = json.NewEncoder(response).Encode(a.answer)
	})
	mux.HandleFunc("POST "+report.RequestPath, func(response http.ResponseWriter, request *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = append(a.asked, request.URL.Query().Get("id"))
		a.answer.Request = &report.Request{ID: request.URL.Query().Get("id"), State: report.RequestPending}
		response.WriteHeader(http.StatusAccepted)
	})
	server := httptest.NewServer(mux)
	c.t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	require.NoError(c.t, err)
	port, err := strconv.ParseInt(address.Port(), 10, 32)
	require.NoError(c.t, err)
	c.agentPort = int32(port)
	return a
}

func (a *agentServer) say(change func(*report.Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.answer)
}

func (a *agentServer) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.asked...)
}

// runWithAgent makes pods run with the sidecar.
func (c *cluster) runWithAgent(pods ...*corev1.Pod) {
	c.t.Helper()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, pod := range pods {
		c.become(pod, corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}},
			Conditions:            []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: report.AgentContainer, Image: "agent:1", State: running}},
			ContainerStatuses:     containerStatus(running),
		})
	}
}

// endWithAgent ends pods well, after the termination message of their sidecar.
func (c *cluster) endWithAgent(last report.Report, pods ...*corev1.Pod) {
	c.t.Helper()
	for _, pod := range pods {
		ended := func(message string) corev1.ContainerState {
			return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message, FinishedAt: metav1.Now()}}
		}
		c.become(pod, corev1.PodStatus{
			Phase:                 corev1.PodSucceeded,
			InitContainerStatuses: []corev1.ContainerStatus{{Name: report.AgentContainer, Image: "agent:1", State: ended(said(c.t, last))}},
			ContainerStatuses:     containerStatus(ended("")),
		})
	}
}

func TestAPIAJobWithCheckpointsKeepsToItsWrites(t *testing.T) {
	c := newCluster(t)
	agent := c.playAgent(report.Report{Phase: report.PhaseSyncing})
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").InStorage(builders.S3Storage()).Namespace(c.namespace).Workers(4))
	pods := c.startPods(c.workers(job, 0))
	c.runWithAgent(pods...)
	c.await(job, "Running", state(mlv1.StateRunning))

	const checkpoints = 3
	for n := range int64(checkpoints) {
		agent.say(func(r *report.Report) { r.Newest, r.Kept = stored("s3://models/x", 100*(n+1)), int(n+1) })
		c.await(job, "a checkpoint", func(job *mlv1.TrainingJob) bool {
			return job.Status.Checkpoint != nil && job.Status.Checkpoint.Step == 100*(n+1)
		})
	}
	c.endWithAgent(report.Report{}, pods[1:]...) // these have nothing to say
	c.endWithAgent(report.Report{Phase: report.PhaseDone, Newest: stored("s3://models/last", 400), Kept: 3}, pods[0])
	done := c.await(job, "Completed", state(mlv1.StateCompleted))
	c.settled(m, job)

	assert.Equal(t, int64(400), done.Status.Checkpoint.Step, "the termination message counts")
	assert.Equal(t, "True StorageReady", outlineOf(desired{status: done.Status}).Conditions["CheckpointReady"])
	changes := checkpoints + 1 // and that the storage is ready
	assert.LessOrEqual(t, len(m.Written()), 12+changes, "%s", strings.Join(m.Written(), "\n"))
}

func TestAPIACheckpointOnRequestIsAskedForOnceAcrossManagers(t *testing.T) {
	c := newCluster(t)
	agent := c.playAgent(syncingReport())
	m := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Checkpoints())
	c.runWithAgent(c.startPods(c.workers(job, 0))...)
	c.await(job, "Running", state(mlv1.StateRunning))
	request := func(want mlv1.CheckpointRequestState) func(*mlv1.TrainingJob) bool {
		return func(job *mlv1.TrainingJob) bool {
			c := job.Status.Checkpoint
			return c != nil && c.Request != nil && c.Request.ID == "now" && c.Request.State == want
		}
	}

	next := job.DeepCopy()
	next.Annotations = map[string]string{mlv1.AnnotationCheckpointNow: "now"}
	require.NoError(t, c.Patch(t.Context(), next, client.MergeFrom(job)))
	c.await(job, "asking", request(mlv1.CheckpointRequestPending))
	eventually(t, "the request", func() bool { return len(agent.requests()) == 1 })
	m.stop()
	m = c.start(nil)
	m.lookAgain(job, 3)
	agent.say(func(r *report.Report) {
		r.Request.State, r.Request.Path = report.RequestDone, "/checkpoints/bert/x/checkpoint-step-5"
	})
	done := c.await(job, "having its checkpoint", request(mlv1.CheckpointRequestDone))
	assert.Equal(t, "/bert/x/checkpoint-step-5", done.Status.Checkpoint.Request.Path)

	agent.say(func(r *report.Report) { r.Request = nil }) // an agent that has just started
	m.stop()
	m = c.start(nil)
	m.lookAgain(job, 5)
	assert.Equal(t, []string{"now"}, agent.requests())
}

func syncingReport() report.Report {
	return report.Report{Phase: report.PhaseSyncing, Newest: stored("/checkpoints/bert/x/checkpoint-epoch-1", 100), Kept: 1}
}

func TestAPIAJobStartsOnceTheJobThatItResumesFromHasACheckpoint(t *testing.T) {
	c := newCluster(t)
	c.playAgent(syncingReport())
	m := c.start(nil)
	next := c.submit(builders.TrainingJob("next").Checkpoints().ResumeFrom("first"))
	c.await(next, "waiting", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.ResumeSourceNotFound })
	first := c.submit(builders.TrainingJob("first").Checkpoints())
	c.runWithAgent(c.startPods(c.workers(first, 0))...)
	c.await(first, "a checkpoint", func(job *mlv1.TrainingJob) bool { return build.HasCheckpoint(&job.Status) })
	m.lookAgain(next, 1)

	workers := c.workers(next, 0)

	pod := workers.Spec.Template.Spec
	require.Equal(t, report.RestoreContainer, pod.InitContainers[0].Name)
	assert.Contains(t, pod.InitContainers[0].Env, corev1.EnvVar{Name: "RESUME_FROM", Value: "/resume/first/" + string(first.UID)})
	started := c.await(next, "starting", func(job *mlv1.TrainingJob) bool { return job.Status.ResumeSource != nil })
	assert.Equal(t, "pvc://first-checkpoints/first/"+string(first.UID), started.Status.ResumeSource.URI)
}
