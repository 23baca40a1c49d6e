package aijob

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/claims"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func inZone(zone string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}},
	}}}
}

// withClaim is a job that mounts a claim.
func withClaim() *world {
	return worldOf(builders.AIJob("a").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "images"},
		}}}
		s.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}))
}

func (w *world) claimIn(zone string) *world {
	required := inZone(zone)
	w.claims = []claims.Claim{{
		Claim:  &corev1.PersistentVolumeClaim{},
		Volume: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{Required: &required}}},
	}}
	return w
}

func TestAJobTakesNoPlaceOnWhichItsVolumesCannotBeUsed(t *testing.T) {
	w := withClaim().admitted("n1").claimIn("b")
	d := plan(w.observed)
	assert.Equal(t, aiplatformv1alpha1.AIJobQueued, d.status.Phase)
	assert.Empty(t, d.status.Assignments)
	assert.Equal(t, []corev1.NodeSelector{inZone("b")}, d.status.VolumeTopology)
	assert.Equal(t, builders.Noon, d.status.QueuedTime.UTC(), "it keeps its age")

	w.job.Status = d.status
	described, state := Source(workerdefaults.Defaults{}, nil).Job(w.job)
	assert.Equal(t, queueing.Waiting, state)
	assert.Equal(t, []*corev1.NodeSelector{ptr.To(inZone("b"))}, described.Groups[0].Required)

	d = plan(w.at(time.Second).admitted("n2").observed)
	assert.Equal(t, aiplatformv1alpha1.AIJobScheduled, d.status.Phase)
	assert.Equal(t, []aiplatformv1alpha1.NodeAssignment{{NodeName: "n2", Members: 1}}, d.status.Assignments)
}

func TestAJobWhoseVolumesAreEverywhereIsAdmittedAtOnce(t *testing.T) {
	w := withClaim().admitted("n1")
	w.claims = []claims.Claim{{Claim: &corev1.PersistentVolumeClaim{}, Volume: &corev1.PersistentVolume{}}}
	assert.Equal(t, aiplatformv1alpha1.AIJobScheduled, plan(w.observed).status.Phase)
}

func TestAJobWaitsForItsClaim(t *testing.T) {
	w := withClaim().admitted("n1")
	w.missingClaim = "images"
	d := plan(w.observed)
	assert.Equal(t, aiplatformv1alpha1.AIJobQueued, d.status.Phase)
	assert.Equal(t, reasons.ClaimNotFound, d.status.Reason)
	assert.Contains(t, d.status.Message, "there is no PersistentVolumeClaim images in namespace ")
	assert.Contains(t, d.status.Message, ": create it, or correct spec.volumes")

	w.job.Status, w.decided = d.status, false
	_, state := Source(workerdefaults.Defaults{}, nil).Job(w.job)
	assert.Equal(t, queueing.Uninvolved, state, "it takes no place meanwhile")
	again := plan(w.at(time.Second).observed)
	assert.Empty(t, cmp.Diff(d.status, again.status))
	assert.Equal(t, claimInterval, again.again)

	w.missingClaim = ""
	d = plan(w.claimIn("b").at(time.Minute).observed)
	assert.Equal(t, reasons.Queued, d.status.Reason)
	assert.Equal(t, []corev1.NodeSelector{inZone("b")}, d.status.VolumeTopology)
	assert.Equal(t, builders.Noon, d.status.QueuedTime.UTC(), "it keeps its age")
	w.job.Status = d.status
	_, state = Source(workerdefaults.Defaults{}, nil).Job(w.job)
	assert.Equal(t, queueing.Waiting, state)
}

func TestAJobWhoseSettingsDoNotGoTogetherWaitsUntilTheyAreCorrected(t *testing.T) {
	w := worldOf(builders.AIJob("a").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})).admitted("n1")
	d := plan(w.observed)
	assert.Equal(t, aiplatformv1alpha1.AIJobQueued, d.status.Phase)
	assert.Equal(t, reasons.InvalidSpec, d.status.Reason)
	assert.Equal(t, "spec.volumeMounts[0].name: spec.volumes has no volume data: add it, or correct the name", d.status.Message)
	w.job.Status, w.decided = d.status, false
	_, state := Source(workerdefaults.Defaults{}, nil).Job(w.job)
	assert.Equal(t, queueing.Uninvolved, state)
	assert.Empty(t, cmp.Diff(d.status, plan(w.at(time.Minute).observed).status))

	w.job.Spec.VolumeMounts = nil
	w.job.Status = plan(w.observed).status
	assert.Equal(t, reasons.Queued, w.job.Status.Reason)
	assert.Equal(t, builders.Noon, w.job.Status.QueuedTime.UTC(), "it keeps its age")
	_, state = Source(workerdefaults.Defaults{}, nil).Job(w.job)
	assert.Equal(t, queueing.Waiting, state)
}

// What starts is what is counted.
func TestTheQueueCountsSidecarsAndSandboxes(t *testing.T) {
	job := builders.AIJob("a").Request("cpu", "2").Request("memory", "1Gi").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.PodTemplate = &podtemplate.PodTemplate{
			RuntimeClassName: ptr.To("sandbox"),
			InitContainers: []corev1.Container{{
				Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
			}},
		}
		required := inZone("b")
		s.Affinity = &aiplatformv1alpha1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &required}}
	}).Obj()
	overheads := func(class string) corev1.ResourceList {
		assert.Equal(t, "sandbox", class)
		return corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("64Mi")}
	}
	described, _ := Source(workerdefaults.Defaults{}, overheads).Job(job)
	assert.EqualValues(t, 2750, described.Groups[0].Requests.MilliCPU)
	assert.EqualValues(t, 1<<30+64<<20, described.Groups[0].Requests.Memory)
	assert.Equal(t, []*corev1.NodeSelector{ptr.To(inZone("b"))}, described.Groups[0].Required)
}

func TestThePodOfAJobHasItsSettings(t *testing.T) {
	required := inZone("b")
	job := withClaim().job
	spec := &job.Spec
	spec.PodOptions = aiplatformv1alpha1.PodOptions{
		ImagePullPolicy: corev1.PullAlways, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](7)}, PriorityClassName: "high",
		Affinity: &aiplatformv1alpha1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &required}},
	}
	spec.PodTemplate = &podtemplate.PodTemplate{Labels: map[string]string{"team": "vision"}, TerminationGracePeriodSeconds: ptr.To[int64](5)}

	pod := buildPod(job, 0, "n1", "", "")

	assert.Equal(t, "vision", pod.Labels["team"])
	assert.Equal(t, "a", pod.Labels[aiplatformv1alpha1.LabelAIJob])
	assert.Equal(t, spec.Volumes, pod.Spec.Volumes)
	assert.Equal(t, spec.VolumeMounts, pod.Spec.Containers[0].VolumeMounts)
	assert.Equal(t, corev1.PullAlways, pod.Spec.Containers[0].ImagePullPolicy)
	assert.Equal(t, spec.ImagePullSecrets, pod.Spec.ImagePullSecrets)
	assert.Equal(t, spec.SecurityContext, pod.Spec.SecurityContext)
	assert.Equal(t, "high", pod.Spec.PriorityClassName)
	assert.EqualValues(t, 5, *pod.Spec.TerminationGracePeriodSeconds)
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	assert.Equal(t, required.NodeSelectorTerms[0].MatchExpressions, terms[0].MatchExpressions)
	assert.Equal(t, []string{"n1"}, terms[0].MatchFields[0].Values)
	assert.Equal(t, "of-the-queue", buildPod(job, 0, "n1", "of-the-queue", "").Spec.PriorityClassName)
}
