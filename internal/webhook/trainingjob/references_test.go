package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func fromConfigMap(variable, name, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key,
	}}}
}

func fromSecret(variable, name string) corev1.EnvVar {
	return corev1.EnvVar{Name: variable, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: "key",
	}}}
}

// Every object that a job names is asked for once, under the field that names it; what the operator makes is not.
func TestReferences(t *testing.T) {
	optional := fromConfigMap("C", "settings", "maybe")
	optional.ValueFrom.ConfigMapKeyRef.Optional = ptr.To(true)
	tests := map[string]struct {
		job  *builders.TrainingJobBuilder
		want []string
	}{
		"a plain job names nothing": {builders.TrainingJob("bert"), nil},
		"a claim of its own":        {builders.TrainingJob("bert").Checkpoints(), nil},
		"a claim that exists":       {builders.TrainingJob("bert").Claim("data"), []string{"spec.checkpoint.storage.claimName PersistentVolumeClaim default/data"}},
		"a claim to resume from": {builders.TrainingJob("bert").Checkpoints().ResumeFrom("pvc://old/run"),
			[]string{"spec.checkpoint.resumeFrom PersistentVolumeClaim default/old"}},
		"variables": {builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
			s.Env = []corev1.EnvVar{{Name: "A", Value: "1"}, fromConfigMap("B", "settings", "b"), optional, fromSecret("D", "key")}
		}), []string{"spec.env[1].valueFrom.configMapKeyRef ConfigMap default/settings b"}},
		"the rest": {builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
			s.ServiceAccountName = "robot"
			s.Scheduling = &mlv1.Scheduling{Priority: "high", Spot: &mlv1.SpotReference{Name: "gpu-vm"}}
			s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		}), []string{
			"spec.serviceAccountName ServiceAccount default/robot",
			"spec.scheduling.priority PriorityClass /high",
			"spec.scheduling.spot.name SpotInstanceVM default/gpu-vm",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			var got []string
			for _, r := range referencesOf(job, childrenOf(job)) {
				line := r.Field + " " + r.Kind.Kind + " " + r.Namespace + "/" + r.Name
				if r.Key != "" {
					line += " " + r.Key
				}
				got = append(got, line)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestStorageClasses(t *testing.T) {
	class := func(name, byDefault string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{defaultClassAnnotation: byDefault}}}
	}
	withClass := func(name string) *mlv1.TrainingJob {
		return builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Storage.StorageClassName = &name }).Obj()
	}
	open := builders.TrainingJob("bert").Checkpoints().Obj()
	tests := map[string]struct {
		job     *mlv1.TrainingJob
		classes []metav1.PartialObjectMetadata
		want    []string
	}{
		"a default class":       {open, []metav1.PartialObjectMetadata{class("slow", "false"), class("fast", "true")}, nil},
		"no default class":      {open, []metav1.PartialObjectMetadata{class("slow", "false")}, []string{"spec.checkpoint.storage.storageClassName: is not set, and the cluster has no default StorageClass"}},
		"a class":               {withClass("slow"), []metav1.PartialObjectMetadata{class("slow", "false")}, nil},
		"a class that is none":  {withClass("quick"), []metav1.PartialObjectMetadata{class("slow", "true")}, []string{`spec.checkpoint.storage.storageClassName: there is no StorageClass "quick": create it or correct the name; until then a new claim bert-checkpoints stays Pending`}},
		"a volume that exists":  {withClass(""), []metav1.PartialObjectMetadata{}, nil},
		"a claim that exists":   {builders.TrainingJob("bert").Claim("data").Obj(), []metav1.PartialObjectMetadata{}, nil},
		"classes are not known": {open, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assertWarnings(t, test.want, warn(test.job, findings{classes: test.classes}))
		})
	}
}

// What the API server says of the workers' Job is told in the words of the TrainingJob.
func TestRefusalsInTermsOfTheJob(t *testing.T) {
	job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Env = []corev1.EnvVar{{Name: "MINE", Value: "1"}, {Name: "1 2", Value: "x"}}
	}).Obj()
	workers := among[*batchv1.Job](childrenOf(job))
	worker := &workers.Spec.Template.Spec.Containers[0]
	worker.Env = append(worker.Env, fromSecret("WANDB_API_KEY", "wandb"))
	for field, want := range map[string]string{
		"spec.template.spec.containers[0].env[3].valueFrom.secretKeyRef.key": "spec.monitoring.wandbSecretRef.key",
		"spec.template.spec.containers[0].env[2].name":                       "spec.env[1].name",
		"spec.template.spec.containers[0].env[0].name":                       "the workers' environment variable RANK.name",
		"spec.template.spec.containers[0].env[9].name":                       "the workers' Job: spec.template.spec.containers[0].env[9].name",
		"spec.template.spec.containers[0].resources.limits[foo]":             "spec.resources.limits[foo]",
		"spec.template.spec.containers[0].image":                             "spec.image",
		"spec.template.spec.containers[0].imagePullPolicy":                   "the workers' Job: spec.template.spec.containers[0].imagePullPolicy",
		"spec.template.spec.affinity.podAffinity":                            "spec.scheduling.affinity.podAffinity",
		"spec.template.spec.tolerations[1].operator":                         "spec.scheduling.tolerations[1].operator",
		"spec.template.spec.nodeSelector":                                    "spec.scheduling.nodeSelector",
		"spec.template.spec.securityContext.supplementalGroups[0]":           "spec.securityContext.supplementalGroups[0]",
		"spec.template.spec.containers[0].securityContext.capabilities":      "the workers' Job: spec.template.spec.containers[0].securityContext.capabilities",
		"spec.completions": "the workers' Job: spec.completions",
	} {
		got := inTermsOf(job, workers, []metav1.StatusCause{{Field: field, Message: "Invalid value: 1"}})
		assert.Equal(t, []metav1.StatusCause{{Field: want, Message: "Invalid value: 1: correct it, because no worker could ever be created"}}, got)
	}
	assert.Nil(t, among[*batchv1.Job](nil))
	assert.IsType(t, &batchv1.Job{}, workers)
}
