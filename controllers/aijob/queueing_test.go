package aijob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestSourceTellsTheSchedulerAll(t *testing.T) {
	toleration := corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}
	job := builders.AIJob("train").Gang(3).Queue("gpus").Priority(80).
		Request("cpu", "1500m").Limit("cpu", "2").Limit("memory", "1Gi").GPUs(2).Limit("example.com/fpga", "1").Limit("ephemeral-storage", "5Gi").
		Annotation(aiplatformv1alpha1.AnnotationUser, "alice").
		Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
			s.ClusterName, s.Preemptible, s.Gang.Topology = "west", ptr.To(false), "topology.kubernetes.io/zone"
			s.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"accelerator": "a100"}
			s.Tolerations = []corev1.Toleration{toleration}
		}).
		Status(func(s *aiplatformv1alpha1.AIJobStatus) {
			s.Phase, s.QueuedTime, s.ScheduledTime = "Running", at(builders.Noon.Add(time.Minute)), at(builders.Noon.Add(2*time.Minute))
			s.Assignments = []aiplatformv1alpha1.NodeAssignment{{NodeName: "a", Members: 2}, {NodeName: "b", Members: 1}}
		}).Obj()

	got, state := Source(workerdefaults.Defaults{}, nil).Job(job)

	assert.Equal(t, queueing.Holding, state)
	assert.Empty(t, cmp.Diff(scheduler.Job{
		UID: job.UID, Generation: job.Generation, Kind: "AIJob", Namespace: job.Namespace, Name: "train", User: "alice", Queue: "gpus", Cluster: "west", Priority: 80,
		QueuedAt: builders.Noon.Add(time.Minute), AdmittedAt: builders.Noon.Add(2 * time.Minute), Topology: "topology.kubernetes.io/zone",
		Placement: []string{"a", "a", "b"},
		Groups: []scheduler.Group{{
			Count: 3, NodeSelector: map[string]string{"accelerator": "a100"}, Tolerations: []corev1.Toleration{toleration},
			Requests: scheduler.Resources{
				MilliCPU: 1500, Memory: 1 << 30, EphemeralStorage: 5 << 30, GPUs: 2, Pods: 1, Extended: map[corev1.ResourceName]int64{"example.com/fpga": 1},
			},
		}},
	}, got))
}

func TestSourceTellsWhoWaitsAndWhoHolds(t *testing.T) {
	place := []aiplatformv1alpha1.NodeAssignment{{NodeName: "a", Members: 1}}
	for name, test := range map[string]struct {
		phase    aiplatformv1alpha1.AIJobPhase
		place    []aiplatformv1alpha1.NodeAssignment
		edit     func(*aiplatformv1alpha1.AIJob)
		state    queueing.State
		stopping bool
	}{
		"new":                         {state: queueing.Waiting},
		"queued":                      {phase: "Queued", state: queueing.Waiting},
		"queued, its pods still end":  {phase: "Queued", place: place, state: queueing.Holding, stopping: true},
		"scheduled":                   {phase: "Scheduled", place: place, state: queueing.Holding},
		"running":                     {phase: "Running", place: place, state: queueing.Holding},
		"pausing":                     {phase: "Retrying", state: queueing.Uninvolved},
		"pausing, its pods still end": {phase: "Retrying", place: place, state: queueing.Holding, stopping: true},
		"succeeded":                   {phase: "Succeeded", state: queueing.Uninvolved},
		"failed, its pods still end":  {phase: "DeadLetter", place: place, state: queueing.Holding, stopping: true},
		"to be cancelled while it waits": {phase: "Queued", state: queueing.Uninvolved,
			edit: func(j *aiplatformv1alpha1.AIJob) { j.Spec.Cancel = ptr.To(true) }},
		"to be cancelled while it runs": {phase: "Running", place: place, state: queueing.Holding, stopping: true,
			edit: func(j *aiplatformv1alpha1.AIJob) { j.Spec.Cancel = ptr.To(true) }},
		"being deleted": {phase: "Queued", state: queueing.Uninvolved,
			edit: func(j *aiplatformv1alpha1.AIJob) { j.DeletionTimestamp = &metav1.Time{Time: builders.Noon} }},
	} {
		t.Run(name, func(t *testing.T) {
			job := builders.AIJob("infer").Obj()
			job.Status.Phase, job.Status.Assignments = test.phase, test.place
			if test.edit != nil {
				test.edit(job)
			}

			got, state := Source(workerdefaults.Defaults{}, nil).Job(job)

			assert.Equal(t, test.state, state)
			assert.Equal(t, test.stopping, got.Stopping)
			if state != queueing.Uninvolved {
				assert.Equal(t, placementOf(&job.Status), got.Placement)
				assert.Equal(t, builders.Noon, got.QueuedAt, "the time of its creation, as long as there is none in the status")
			}
		})
	}
}

func TestPodsThatNameNoLimitGetTheInstallations(t *testing.T) {
	memory := func(amount string) workerdefaults.Defaults {
		return workerdefaults.Defaults{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}}
	}
	w := worldOf(builders.AIJob("infer")).admitted("a")
	w.defaultResources = memory("2Gi")
	waiting, _ := Source(w.defaultResources, nil).Job(w.job)
	assert.Equal(t, int64(2<<30), waiting.Groups[0].Requests.Memory, "a limit is the request, and counted before the job is admitted")

	w.job.Status = plan(w.observed).status
	require.Equal(t, "2Gi", w.job.Status.DefaultResources.Limits.Memory().String())
	assert.Equal(t, "2Gi", buildPod(w.job, 0, "a", "", "").Spec.Containers[0].Resources.Limits.Memory().String())
	holding, _ := Source(memory("4Gi"), nil).Job(w.job)
	assert.Equal(t, int64(2<<30), holding.Groups[0].Requests.Memory, "its pods stay as they are")
}

func TestAssignmentsKeepEachMembersNode(t *testing.T) {
	status := aiplatformv1alpha1.AIJobStatus{Assignments: assignmentsOf([]string{"b", "a", "b"})}
	assert.Equal(t, []aiplatformv1alpha1.NodeAssignment{{NodeName: "b", Members: 2}, {NodeName: "a", Members: 1}}, status.Assignments)
	assert.Equal(t, []string{"b", "b", "a"}, placementOf(&status), "members are alike: which is where does not matter, only how many")
}
