package spotinstancejob

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
)

// trainImage is that of the template.
const trainImage = "registry.example.com/train:1"

// take puts the notice of a preemption onto a node, as the node agent does.
func (c *cluster) take(node string) time.Time {
	c.t.Helper()
	now := time.Now()
	require.NoError(c.t, nodenotice.Mark(c.t.Context(), c.Client, node, nodenotice.Notice{Node: node, Source: nodenotice.MetadataServer, Time: now}))
	return now
}

// lose takes a node away.
func (c *cluster) lose(node string) {
	c.t.Helper()
	c.dead[node] = true
	require.NoError(c.t, c.Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}))
}

// unchanged fails when looking at a job again writes anything.
func (c *cluster) unchanged(m *manager, job *spotv1alpha1.SpotInstanceJob) {
	c.t.Helper()
	c.quiet(m)
	before := m.Written()
	for i := range 5 {
		job.Annotations = map[string]string{"touched": fmt.Sprint(i)}
		require.NoError(c.t, c.Patch(c.t.Context(), &spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Name: job.Name, Namespace: job.Namespace}},
			client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"metadata":{"annotations":{"touched":"%d"}}}`, i)))))
	}
	c.quiet(m)
	assert.Empty(c.t, m.Written()[len(before):])
}

// quiet lets the cluster go on until the manager has not written for a while.
func (c *cluster) quiet(m *manager) {
	c.t.Helper()
	last, since := -1, time.Now()
	c.until("quiet", func() bool {
		if now := len(m.Written()); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
}

func TestAPIAJobRunsToItsEnd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b", "c")
	m := c.start(nil)
	job := c.submit(spotJob().Checkpoints(hour))
	c.reach(job, "Running", runs(2))
	assert.Equal(t, map[string]string{
		"Ready": "True Ready", "CapacityAvailable": "True ReplicasPlaced", "CheckpointAgentAvailable": "False CheckpointAgentNotInstalled",
	}, conditionsOf(job.Status), "without an agent everything else works")
	assert.NotNil(t, job.Status.StartTime)
	c.unchanged(m, job)

	require.NoError(t, c.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))))
	c.reach(job, "of three replicas", runs(3))
	require.NoError(t, c.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))))
	c.reach(job, "of two replicas", runs(2))
	c.until("the third being gone", func() bool { return len(c.pods()) == 2 })

	c.succeedIn(1)
	c.reach(job, "Succeeded", phase(spotv1alpha1.JobSucceeded))
	c.until("the other being stopped", func() bool { return len(c.jobNames()) == 1 })
	assert.Equal(t, []string{"bert-1"}, c.jobNames())
	assert.Equal(t, map[string]spotv1alpha1.ReplicaPhase{"bert-1": "Succeeded"}, replicaPhases(job.Status))
	assert.NotNil(t, job.Status.CompletionTime)
	c.unchanged(m, job)
}

func TestAPIAJobThatCannotBeWrittenDoesNotFreezeTheStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b")
	m := c.start(&crash.Cut{Method: http.MethodPost, Path: "/jobs", Refused: true})
	job := c.submit(spotJob())

	c.reach(job, "told what cannot be written", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return meta.IsStatusConditionFalse(status.Conditions, reasons.ConditionChildrenApplied)
	})
	told := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionChildrenApplied)
	assert.Equal(t, reasons.WriteFailed, told.Reason)
	assert.Contains(t, told.Message, "create Job bert-")
	m.Heal()
	c.reach(job, "Running", runs(2))
	assert.True(t, meta.IsStatusConditionTrue(job.Status.Conditions, reasons.ConditionChildrenApplied))
}

func TestAPIAPreemptedReplicaGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	for _, version := range checkpointbackup.Versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, version, "a", "b", "c")
			m := c.start(nil)
			job := c.submit(spotJob().Checkpoints(hour))
			c.reach(job, "Running", runs(2))

			noticed := c.take(c.podOf(0).Spec.NodeName)
			await(t, "the request for a checkpoint", func() bool { return len(c.backups()) > 0 })
			took := time.Since(noticed)
			t.Logf("from the notice to the CheckpointBackup: %s", took)
			assert.Less(t, took, 10*time.Second, "far more than it should take, for machines that do much else; the live node's test has the true figure")

			c.reach(job, "Running again", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
				return runs(2)(status) && status.JobStatuses[0].Name == "bert-0-r1"
			})
			assert.Equal(t, int32(1), job.Status.PreemptionCount)
			assert.Equal(t, int32(1), job.Status.JobStatuses[0].RestartCount)
			backups := c.backups()
			require.Len(t, backups, 1)
			image := "registry.example.com:5000/team/checkpoints:" + backups[0].GetName()
			assert.Equal(t, map[string]string{"bert-0": trainImage, "bert-1": trainImage, "bert-0-r1": image}, c.started)
			assert.Equal(t, image, job.Status.LastCheckpointImage)
			c.until("the old Job being gone", func() bool { return len(c.jobNames()) == 2 })
			assert.Equal(t, "True CheckpointsTaken", conditionsOf(job.Status)["CheckpointAgentAvailable"])
			c.unchanged(m, job)
		})
	}
}

// refuseBackups has the API server call a webhook that does not answer for each CheckpointBackup of this test.
func (c *cluster) refuseBackups() {
	c.t.Helper()
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "backups.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
			ClientConfig:      admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/")},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule:       admissionv1.Rule{APIGroups: []string{checkpointbackup.GroupKind.Group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
		}},
	}
	require.NoError(c.t, c.Create(c.t.Context(), hook))
	c.t.Cleanup(func() { _ = c.Delete(context.Background(), hook) })
}

func TestAPIABrokenWebhookOfCheckpointBackupsHoldsUpNoReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, checkpointbackup.Versions[0], "a", "b", "c")
	c.start(nil)
	job := c.submit(spotJob().Checkpoints(hour))
	c.reach(job, "Running", runs(2))
	c.refuseBackups()
	node := c.podOf(0).Spec.NodeName

	c.take(node)

	c.reach(job, "telling that no checkpoint can be taken", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["CheckpointAgentAvailable"] == "False CheckpointFailed"
	})
	c.lose(node)
	c.reach(job, "Running again", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return runs(2)(status) && status.JobStatuses[0].Name == "bert-0-r1"
	})
}

func TestAPIALostReplicaStartsFromACheckpointOfAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "v1", "a", "b", "c")
	c.start(nil)
	job := c.submit(spotJob().Checkpoints(hour))
	c.reach(job, "Running", runs(2))

	c.lose(c.podOf(0).Spec.NodeName)
	c.reach(job, "Running again", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return runs(2)(status) && status.JobStatuses[0].Name == "bert-0-r1"
	})
	backups := c.backups()
	require.Len(t, backups, 1)
	assert.Equal(t, "1", backups[0].GetLabels()[spotv1alpha1.LabelReplica], "the one that is alive was saved")
	assert.Equal(t, "registry.example.com:5000/team/checkpoints:"+backups[0].GetName(), c.started["bert-0-r1"])
	assert.Equal(t, int32(1), job.Status.PreemptionCount)
}

func TestAPIAPodOnANodeThatDoesNotAnswerIsNotDuplicated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b", "c")
	c.start(nil)
	job := c.submit(spotJob())
	c.reach(job, "Running", runs(2))
	pod := c.podOf(0)
	c.take(pod.Spec.NodeName)
	c.dead[pod.Spec.NodeName] = true
	c.until("the pod being stopped", func() bool { return c.podOf(0).DeletionTimestamp != nil })
	c.reach(job, "Recovering", phase(spotv1alpha1.JobRecovering))
	for range 20 {
		c.step() // which fails when another pod of the replica is made
	}
	require.Equal(t, pod.UID, c.podOf(0).UID)

	c.lose(pod.Spec.NodeName)
	c.reach(job, "Running again", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return runs(2)(status) && status.JobStatuses[0].Name == "bert-0-r1"
	})
	assert.Equal(t, int32(1), job.Status.PreemptionCount)
}

func TestAPIAnAgentThatComesLaterIsUsed(t *testing.T) {
	t.Parallel()
	c := newClusterOf(t, apiserver.Start(t, apiserver.OwnCRDs).Config(t), "", "a", "b", "c")
	c.discovers = true
	c.start(nil)
	job := c.submit(spotJob().Checkpoints(hour))
	c.reach(job, "Running", runs(2))
	require.Equal(t, "False CheckpointAgentNotInstalled", conditionsOf(job.Status)["CheckpointAgentAvailable"])

	c.serve("v1alpha1")
	c.version = "v1alpha1"
	c.reach(job, "seeing the agent", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["CheckpointAgentAvailable"] == "Unknown NoCheckpointYet"
	})
	c.take(c.podOf(1).Spec.NodeName)
	c.reach(job, "Running again from a checkpoint", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return runs(2)(status) && status.JobStatuses[1].Name == "bert-1-r1"
	})
	assert.Contains(t, c.started["bert-1-r1"], "team/checkpoints:bert-1-")

	c.serve()
	c.version = ""
	c.reach(job, "seeing that the agent is gone", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["CheckpointAgentAvailable"] == "False CheckpointAgentNotInstalled"
	})
	assert.Equal(t, spotv1alpha1.JobRunning, job.Status.Phase)
}

func TestAPIFailures(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b")
	m := c.start(nil)
	job := c.submit(spotJob())
	c.reach(job, "Running", runs(2))
	c.failIn(0)
	c.reach(job, "one replica less", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return status.ActiveReplicas == 1 && replicaPhases(*status)["bert-0"] == spotv1alpha1.ReplicaFailed
	})
	assert.Equal(t, spotv1alpha1.JobRunning, job.Status.Phase)
	c.failIn(1)
	c.reach(job, "Failed", phase(spotv1alpha1.JobFailed))
	var message string
	for _, condition := range job.Status.Conditions {
		if condition.Type == reasons.ConditionFailed {
			message = condition.Message
		}
	}
	assert.Contains(t, message, "replica 0: container train of pod bert-0-")
	assert.Contains(t, message, "ended with exit code 3: CUDA error; replica 1: ")
	c.unchanged(m, job)
	var told []string
	for len(m.events.Events) > 0 {
		told = append(told, strings.Join(strings.Fields(<-m.events.Events)[:2], " "))
	}
	assert.Equal(t, []string{"Normal Running", "Warning ReplicaFailed", "Warning ReplicaFailed", "Warning Failed"}, told)
}

func TestAPIWhatIsMissingIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b")
	c.full = true
	c.start(nil)
	job := c.submit(spotJob().On("t4").Checkpoints(hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
		s.CheckpointConfig.CheckpointRepoCredentialRef = &spotv1alpha1.SecretReference{Name: "push"}
	}))
	ready := func(want string) func(*spotv1alpha1.SpotInstanceJobStatus) bool {
		return func(status *spotv1alpha1.SpotInstanceJobStatus) bool { return conditionsOf(*status)["Ready"] == want }
	}
	c.reach(job, "without its Secret", ready("False SecretNotFound"))
	assert.Empty(t, c.jobNames(), "nothing starts without it")

	require.NoError(t, c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "push", Namespace: c.namespace}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{}`)},
	}))
	c.reach(job, "without its SpotInstanceVM", ready("False SpotInstanceVMNotFound"))
	c.reach(job, "without room", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["CapacityAvailable"] == "False SpotInstanceVMNotFound" && status.Phase == spotv1alpha1.JobProvisioning
	})
	pod := c.podOf(0)
	assert.Equal(t, "t4", pod.Labels[spotv1alpha1.LabelSpotInstanceVM], "by which the SpotInstanceVM knows what is asked of it")

	vm := &spotv1alpha1.SpotInstanceVM{
		ObjectMeta: metav1.ObjectMeta{Name: "t4", Namespace: c.namespace},
		Spec: spotv1alpha1.SpotInstanceVMSpec{VMImage: "projects/x/global/images/y", GCP: spotv1alpha1.GCP{
			Project: "my-project", Zone: "us-central1-a", MachineType: "n1-standard-4",
		}},
	}
	require.NoError(t, c.Create(t.Context(), vm))
	c.reach(job, "waiting for an instance", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["CapacityAvailable"] == "False Provisioning" && ready("True Ready")(status)
	})
	next := vm.DeepCopy()
	next.Status.Conditions = []metav1.Condition{{
		Type: "CapacityAvailable", Status: "False", Reason: "ZoneExhausted", Message: "no T4 in us-central1-a", LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, c.Status().Patch(t.Context(), next, client.MergeFrom(vm)))
	c.reach(job, "told why there is none", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["CapacityAvailable"] == "False ZoneExhausted"
	})
	c.full = false
	c.reach(job, "Running", runs(2))
}

func TestAPIAStrangersJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b")
	stranger := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "bert-0", Namespace: c.namespace},
		Spec:       *spotJob().Obj().Spec.JobTemplate.Spec.DeepCopy(),
	}
	stranger.Spec.Suspend = ptr.To(true)
	require.NoError(t, c.Create(t.Context(), stranger))
	c.start(nil)
	job := c.submit(spotJob())
	c.reach(job, "in conflict", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["Ready"] == "False ObjectConflict" && status.ActiveReplicas == 1
	})
	var now batchv1.Job
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(stranger), &now))
	assert.Empty(t, now.OwnerReferences)
}

func TestAPIATemplateThatTheServerRefusesIsTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a")
	c.start(nil)
	job := c.submit(spotJob().Template(func(s *batchv1.JobSpec) {
		s.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 99999}}
	}))
	c.reach(job, "refused", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return conditionsOf(*status)["Ready"] == "False InvalidSpec"
	})
}

func TestAPIAJobThatLostItsLabelsIsFoundAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b")
	m := c.start(nil)
	job := c.submit(spotJob())
	c.reach(job, "Running", runs(2))
	stripped := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "bert-0", Namespace: c.namespace}}
	require.NoError(t, c.Patch(t.Context(), stripped, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"training.dcnlab.com/spot-instance-job":null}}}`))))
	c.until("the labels being back", func() bool {
		require.NoError(t, c.Get(t.Context(), key(stripped), stripped))
		return stripped.Labels[spotv1alpha1.LabelSpotInstanceJob] == "bert" && stripped.Labels[spotv1alpha1.LabelReplica] == "0"
	})
	c.quiet(m)
	assert.ElementsMatch(t, []string{"bert-0", "bert-1"}, c.jobNames())
	c.reach(job, "Running", runs(2))
	assert.Equal(t, "bert-0", job.Status.JobStatuses[0].Name)
}

func TestAPIADeletedJobIsCreatedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "a", "b")
	c.start(nil)
	job := c.submit(spotJob())
	c.reach(job, "Running", runs(2))
	require.NoError(t, c.Delete(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "bert-1", Namespace: c.namespace}},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
	c.reach(job, "Running again", func(status *spotv1alpha1.SpotInstanceJobStatus) bool {
		return runs(2)(status) && status.JobStatuses[1].Name == "bert-1-r1"
	})
	assert.Zero(t, job.Status.PreemptionCount)
}
