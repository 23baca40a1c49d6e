package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestCheckpointsAreNotReadyBeforeTheirClaimIsBound(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(1).Checkpoints().Obj()
	workers := builders.Workers(job).Obj()
	says := "storageclass.storage.k8s.io \"fast\" not found"
	waits := func(phase corev1.PersistentVolumeClaimPhase) observed {
		o := see(job, workers, builders.Pod(workers, 0).Unschedulable("pod has unbound immediate PersistentVolumeClaims").Obj()).after(time.Minute)
		o.claims, o.claimSays = []claims.Claim{{Claim: claimed(phase)}}, says
		return o
	}
	queued := see(job, nil)
	queued.claims = []claims.Claim{{Claim: claimed(corev1.ClaimPending)}}
	bound := see(job, nil)
	bound.claims = []claims.Claim{{Claim: claimed(corev1.ClaimBound)}}
	remedy := "; the workers start once it is bound: create a volume or the StorageClass for it"
	for name, test := range map[string]struct {
		o    observed
		want string
	}{
		"no claim yet":                  {see(job, nil), ""},
		"a claim that no pod waits for": {queued, ""},
		"a pod that was just made":      {see(job, workers, builders.Pod(workers, 0).Obj()), ""},
		"a pod waits": {
			waits(corev1.ClaimPending), "False ClaimPending: PersistentVolumeClaim bert-checkpoints is Pending: " + says + remedy},
		"its volume is gone": {
			waits(corev1.ClaimLost), "False ClaimPending: PersistentVolumeClaim bert-checkpoints is Lost: " + says + remedy},
		"a pod waits for something else": {waits(corev1.ClaimBound), "True StorageReady: checkpoints are kept on the claim bert-checkpoints"},
		"bound before":                   {bound, "True StorageReady: checkpoints are kept on the claim bert-checkpoints"},
		"a pod has its node": {
			see(job, workers, builders.Pod(workers, 0).On("a").Obj()), "True StorageReady: checkpoints are kept on the claim bert-checkpoints"},
		"a pod runs": {
			see(job, workers, builders.Pod(workers, 0).Running().Obj()), "True StorageReady: checkpoints are kept on the claim bert-checkpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, readyCondition(plan(test.o)))
		})
	}
	t.Run("it is bound at last", func(t *testing.T) {
		o := waits(corev1.ClaimPending)
		o.job = job.DeepCopy()
		o.job.Status = plan(o).status
		o.claims[0].Claim.Status.Phase = corev1.ClaimBound
		assert.Equal(t, "True", readyCondition(plan(o))[:4])
	})
}

func TestAPICheckpointsAreNotReadyWhileTheirClaimWaitsForAClass(t *testing.T) {
	c := newCluster(t)
	c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Storage.StorageClassName = ptr.To("forgotten") }))
	pods := c.startPods(c.workers(job, 0))
	var claim corev1.PersistentVolumeClaim
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: "bert-checkpoints"}, &claim))
	require.NoError(t, c.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: c.namespace, Name: "bert-checkpoints.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: c.namespace, Name: claim.Name, UID: claim.UID},
		Reason:         "ProvisioningFailed", Message: "storageclass forgotten not found", Type: corev1.EventTypeWarning, LastTimestamp: metav1.Now(),
	}))
	c.become(pods[0], corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}})
	waiting := c.await(job, "waiting for its claim", func(job *mlv1.TrainingJob) bool {
		return meta.IsStatusConditionFalse(job.Status.Conditions, reasons.ConditionCheckpointReady)
	})
	assert.Contains(t, meta.FindStatusCondition(waiting.Status.Conditions, reasons.ConditionCheckpointReady).Message, "is Pending: storageclass forgotten not found")

	claim.Status.Phase = corev1.ClaimBound
	require.NoError(t, c.Status().Update(t.Context(), &claim))

	c.await(job, "ready to keep checkpoints", func(job *mlv1.TrainingJob) bool {
		return meta.IsStatusConditionTrue(job.Status.Conditions, reasons.ConditionCheckpointReady)
	})
}
