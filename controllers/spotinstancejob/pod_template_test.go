package spotinstancejob

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestAPrivateOriginalImageIsPulledBeforeARestart(t *testing.T) {
	long := strings.Repeat("a", 63)
	template := func(secrets ...corev1.LocalObjectReference) corev1.PodSpec {
		b := spotJob().Checkpoints(hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
			s.CheckpointConfig.CheckpointRepoCredentialRef = &spotv1alpha1.SecretReference{Name: "checkpoints"}
			s.JobTemplate.Spec.Template.Spec.ImagePullSecrets = secrets
			s.JobTemplate.Spec.Template.Spec.Containers = []corev1.Container{
				{Name: "train", Image: "registry.example.com/train:1", SecurityContext: &corev1.SecurityContext{}}, {Name: long, Image: "registry.example.com/log:1"},
			}
		})
		from := origin{name: "c", images: map[string]string{"train": "r/x:c-train", long: "r/x:c-log"}}
		return buildJob(b.Obj(), 0, 2, from, 0, nil).Spec.Template.Spec
	}
	assert.Empty(t, template().InitContainers, "the runtime pulls what is public itself")
	init := template(corev1.LocalObjectReference{Name: "images"}).InitContainers
	require.Len(t, init, 2)
	assert.Equal(t, "original-train", init[0].Name)
	assert.Equal(t, "registry.example.com/train:1", init[0].Image)
	assert.NotNil(t, init[0].SecurityContext, "Pod Security asks the same of it")
	assert.Empty(t, validation.IsDNS1123Label(init[1].Name))
}
