package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// withPodSettings is a job whose workers have a volume, a sidecar and a label of their own.
func withPodSettings() *builders.TrainingJobBuilder {
	return builders.TrainingJob("a").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: ClaimSource("images", true)}}
		s.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		s.PodTemplate = &podtemplate.PodTemplate{
			Labels: map[string]string{"team": "vision", mlv1.LabelTrainingJob: "other"},
			InitContainers: []corev1.Container{
				{Name: "prepare", Image: "tools"},
				{
					Name: "proxy", Image: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
				},
			},
			TerminationGracePeriodSeconds: ptr.To[int64](600),
			TopologySpreadConstraints:     []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway}},
		}
		s.Resources = &corev1.ResourceRequirements{Requests: list("cpu", "2")}
	})
}

func TestWorkersHaveTheirPodSettings(t *testing.T) {
	job := withPodSettings().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Checkpoint = &mlv1.Checkpoint{Storage: mlv1.CheckpointStorage{Type: mlv1.StoragePVC}}
		s.NumWorkers, s.Networking.Preflight = 2, ptr.To(true)
	}).Obj()
	before := job.DeepCopy()

	template := Workers(job, Settings{}, 1).Spec.Template

	assert.Equal(t, "vision", template.Labels["team"])
	assert.Equal(t, "a", template.Labels[mlv1.LabelTrainingJob])
	var order []string
	for _, container := range template.Spec.InitContainers {
		order = append(order, container.Name)
	}
	assert.Equal(t, []string{"network-preflight", "prepare", "proxy", "checkpoint-restore", "checkpoint-agent"}, order)
	assert.Contains(t, template.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: ClaimSource("images", true)})
	assert.Contains(t, template.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	assert.EqualValues(t, 600, *template.Spec.TerminationGracePeriodSeconds)
	assert.Equal(t, map[string]string{mlv1.LabelTrainingJob: "a"}, template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels)
	assert.Empty(t, cmp.Diff(before, job), "the spec must not be changed")
}

// What starts is what is counted.
func TestSidecarsAreCountedWithTheirWorkers(t *testing.T) {
	job := withPodSettings().Workers(3).Obj()
	requests := Requests(job, 3)
	assert.Equal(t, "7500m", requests.Cpu().String())
	assert.Equal(t, "7500m", Resources(job, nil).CPU.String())
}

func TestTheClaimsOfVolumesMustExistFirst(t *testing.T) {
	job := withPodSettings().Obj()
	assert.Equal(t, []string{"images"}, NamedClaims(job))
	assert.Equal(t, "spec.volumes", ClaimField(job, "images"))

	both := withPodSettings().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Checkpoint = &mlv1.Checkpoint{Storage: mlv1.CheckpointStorage{Type: mlv1.StoragePVC, ClaimName: "images"}, ResumeFrom: "pvc://old/run"}
	}).Obj()
	assert.Equal(t, []string{"images", "old"}, NamedClaims(both))
	assert.Equal(t, "spec.checkpoint", ClaimField(both, "old"))
}

func TestSettingsThatDoNotGoTogetherAreNamed(t *testing.T) {
	job := withPodSettings().Spec(func(s *mlv1.TrainingJobSpec) { s.VolumeMounts[0].Name = "dat" }).Obj()
	field, message := Check(job)
	assert.Equal(t, "spec.volumeMounts[0].name", field)
	assert.Equal(t, "spec.volumes has no volume dat: add it, or correct the name", message)

	short := withPodSettings().Spec(func(s *mlv1.TrainingJobSpec) {
		s.PodTemplate.TerminationGracePeriodSeconds = ptr.To[int64](30)
	}).Obj()
	field, _ = Check(short)
	assert.Equal(t, "spec.podTemplate.terminationGracePeriodSeconds", field)
	assert.EqualValues(t, 60, GracePeriod(short))
}
