package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func inZone(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}
}

func claimed(phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "bert-checkpoints", UID: "uid-of-claim"}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
	}
}

// boundIn is a claim that is bound to a volume of a zone.
func boundIn(zone string) claims.Claim {
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: inZone(zone)}}}
	return claims.Claim{Claim: claimed(corev1.ClaimBound), Volume: volume}
}

// ofClass is a claim that is not bound.
func ofClass(mode storagev1.VolumeBindingMode, zones ...string) claims.Claim {
	class := &storagev1.StorageClass{VolumeBindingMode: &mode}
	if len(zones) > 0 {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: zones}},
		}}
	}
	return claims.Claim{Claim: claimed(corev1.ClaimPending), Class: class}
}

func TestAQueueGivesOnlyNodesOnWhichTheVolumesCanBeUsed(t *testing.T) {
	for name, test := range map[string]struct {
		claims []claims.Claim
		want   []*corev1.NodeSelector
	}{
		"a volume of a zone":          {[]claims.Claim{boundIn("a")}, []*corev1.NodeSelector{inZone("a")}},
		"volumes of two zones":        {[]claims.Claim{boundIn("a"), boundIn("b")}, []*corev1.NodeSelector{inZone("a"), inZone("b")}},
		"a class of a zone":           {[]claims.Claim{ofClass(storagev1.VolumeBindingWaitForFirstConsumer, "a")}, []*corev1.NodeSelector{inZone("a")}},
		"a class of any zone":         {[]claims.Claim{ofClass(storagev1.VolumeBindingWaitForFirstConsumer)}, nil},
		"a volume of the network":     {[]claims.Claim{{Claim: claimed(corev1.ClaimBound), Volume: &corev1.PersistentVolume{}}}, nil},
		"a class that does not exist": {[]claims.Claim{{Claim: claimed(corev1.ClaimPending)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			job := inQueue("bert").Checkpoints().Obj()
			o := see(job, nil)
			o.claims = test.claims
			job.Status = plan(o).status
			described, _ := Source(build.Settings{}, nil, nil).Job(job)
			assert.Equal(t, test.want, described.Groups[0].Required)
		})
	}
}

// The volume was bound after the queue had decided.
func TestAPlaceThatNoLongerSuitsTheVolumesIsNotTaken(t *testing.T) {
	job := waitingJob(inQueue("bert").Checkpoints())
	o := see(job, nil).decided(admittedTo("a", "b"))
	o.claims = []claims.Claim{boundIn("z")}

	d := plan(o)

	assert.Nil(t, d.status.Admission.AdmittedTime)
	assert.Equal(t, []corev1.NodeSelector{*inZone("z")}, d.status.Admission.VolumeTopology)
	o.job.Status = d.status
	assert.NotNil(t, plan(o).status.Admission.AdmittedTime, "the next decision is made for it")
}

func TestAPlaceIsKeptWhileVolumesAreBeingBound(t *testing.T) {
	provisioned := ofClass(storagev1.VolumeBindingWaitForFirstConsumer)
	provisioned.Claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "a"}
	for name, test := range map[string]struct {
		claim  claims.Claim
		says   string
		after  time.Duration
		reason string
	}{
		"bound at once":                {ofClass(storagev1.VolumeBindingImmediate), unboundClaims, 10 * time.Minute, reasons.ClaimPending},
		"made for the pod":             {provisioned, "", 10 * time.Minute, reasons.ClaimPending},
		"the scheduler did not see it": {boundIn("a"), "pod has " + unboundClaims, 10 * time.Minute, reasons.ClaimPending},
		"bound in another zone":        {boundIn("a"), "had volume node affinity conflict", time.Minute, reasons.Unschedulable},
		"not asked for":                {ofClass(storagev1.VolumeBindingWaitForFirstConsumer), "Insufficient cpu", time.Minute, reasons.Unschedulable},
		"no class to make it":          {claims.Claim{Claim: claimed(corev1.ClaimPending)}, unboundClaims, time.Minute, reasons.Unschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			job := admittedJob(inQueue("bert").Workers(1).Checkpoints(), "a")
			workers := builders.Workers(job).Obj()
			pod := builders.Pod(workers, 0).Unschedulable(test.says).Obj()
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(builders.Noon)
			o := see(job, workers, pod)
			o.claims = []claims.Claim{test.claim}
			assert.Empty(t, plan(o.after(test.after-time.Millisecond)).status.Admission.Releasing)
			d := plan(o.after(test.after))
			assert.Equal(t, "False "+test.reason, outlineOf(d).Conditions["Admitted"])
			assert.Contains(t, d.status.Admission.Releasing, test.says)
		})
	}
}

// Or the queue gives the job the same nodes again and again.
func TestNodesThatTookNoPodsAreAvoided(t *testing.T) {
	job := admittedJob(inQueue("bert"), "a", "b")
	queued := job.Status.Admission.QueuedTime
	refuse := func(at time.Duration) *mlv1.AdmissionStatus {
		workers := builders.Workers(job).Obj()
		job.Status = plan(see(job, workers, builders.Pod(workers, 0).On("a").Running().Obj(), builders.Pod(workers, 1).Created(at-time.Minute).Obj()).after(at)).status
		require.NotEmpty(t, job.Status.Admission.Releasing)
		job.Status = plan(see(job, nil).after(at)).status
		return job.Status.Admission
	}
	until := func(after time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(builders.Noon.Add(after))) }

	assert.Equal(t, &mlv1.AdmissionStatus{
		QueuedTime: queued, FailedStarts: 1, AvoidedNodes: []mlv1.AvoidedNode{{NodeName: "b", Until: until(90 * time.Second)}},
	}, refuse(time.Minute), "it keeps its age")

	assert.Equal(t, queueing.Waiting, admissionState(job), "other nodes may do")
	described, _ := Source(build.Settings{}, nil, nil).Job(job)
	assert.Equal(t, []*corev1.NodeSelector{{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"b"}},
	}}}}}, described.Groups[0].Required)

	job.Status = plan(see(job, nil).after(time.Minute).decided(admittedTo("a", "c"))).status
	of := refuse(2 * time.Minute)
	assert.Equal(t, []mlv1.AvoidedNode{{NodeName: "b", Until: until(90 * time.Second)}, {NodeName: "c", Until: until(3 * time.Minute)}}, of.AvoidedNodes, "for longer")

	d := plan(see(job, nil).after(2*time.Minute + time.Second))
	assert.Equal(t, []mlv1.AvoidedNode{{NodeName: "c", Until: until(3 * time.Minute)}}, d.status.Admission.AvoidedNodes)
	assert.Equal(t, 59*time.Second, d.again)
	job.Status = d.status
	assert.Empty(t, plan(see(job, nil).after(3*time.Minute)).status.Admission.AvoidedNodes)
}
