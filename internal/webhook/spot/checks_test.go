package spot

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestGPUsThatNoInstanceCanHave(t *testing.T) {
	for _, test := range []struct {
		machineType, gpu string
		count            int32
		field, want      string
	}{
		{"n1-standard-8", "nvidia-tesla-t4", 4, "", ""},
		{"n1-standard-96", "nvidia-tesla-v100", 8, "", ""},
		{"a2-highgpu-1g", "nvidia-tesla-a100", 1, "", ""},
		{"n9-standard-8", "nvidia-t9", 3, "", ""}, // what is new is the provider's to judge
		{"n1-standard-8", "nvidia-tesla-t4", 3, "spec.gpu.count", "no instance has 3 GPUs of type nvidia-tesla-t4: choose one of 1, 2, 4"},
		{"n1-standard-8", "nvidia-tesla-t4", 8, "spec.gpu.count", "choose one of 1, 2, 4"},
		{"n1-standard-8", "nvidia-l4", 1, "spec.gpu.type", "nvidia-l4 comes with the machine types g2-* alone, not with n1-standard-8"},
		{"g2-standard-8", "nvidia-tesla-t4", 1, "spec.gpu.type", "nvidia-tesla-t4 can be attached to machine types n1-* alone"},
		{"e2-standard-4", "nvidia-tesla-t4", 1, "spec.gpu", "instances of machine type e2-standard-4 have no GPUs"},
		{"c3-highcpu-4", "nvidia-t9", 1, "spec.gpu", "have no GPUs"},
	} {
		causes := gpuMistakes(&spotv1alpha1.GPU{Type: test.gpu, Count: test.count}, test.machineType)
		if test.want == "" {
			assert.Empty(t, causes, "%d %s of %s", test.count, test.gpu, test.machineType)
			continue
		}
		require.Len(t, causes, 1, "%d %s of %s", test.count, test.gpu, test.machineType)
		assert.Equal(t, test.field, causes[0].Field)
		assert.Contains(t, causes[0].Message, test.want)
	}
}

func TestEachMachineTypeTakesTheGPUs(t *testing.T) {
	vm := &spotv1alpha1.SpotInstanceVM{}
	vm.Spec.GPU = &spotv1alpha1.GPU{Type: "nvidia-tesla-t4", Count: 1}
	vm.Spec.GCP.MachineType, vm.Spec.GCP.MachineTypes = "n1-standard-8", []string{"n1-standard-16"}
	assert.Empty(t, vmChecks{}.mistakes(vm))
	vm.Spec.GCP.MachineTypes = append(vm.Spec.GCP.MachineTypes, "e2-standard-4", "e2-standard-8")
	causes := vmChecks{}.mistakes(vm)
	require.Len(t, causes, 1, "one says enough")
	assert.Contains(t, causes[0].Message, "instances of machine type e2-standard-4 have no GPUs")
}

func namesAll(namespace string) *spotv1alpha1.SpotInstanceJob {
	settings := corev1.LocalObjectReference{Name: "settings"}
	return builders.SpotInstanceJob("sweep").Namespace(namespace).On("t4-spot").Checkpoints(time.Hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
		s.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
		s.CheckpointConfig.CheckpointRepoCredentialRef = &spotv1alpha1.SecretReference{Name: "registry"}
	}).Template(func(s *batchv1.JobSpec) {
		pod := &s.Template.Spec
		pod.ServiceAccountName, pod.PriorityClassName = "robot", "urgent"
		pod.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "more", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings}}},
			{Name: "maybe", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: settings, Optional: ptr.To(true)}}},
		}
		pod.Containers[0].Env = []corev1.EnvVar{
			{Name: "PLAIN", Value: "1"},
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: settings, Key: "a"}}},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: settings, Key: "b"}}},
		}
		pod.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: settings}}}
	}).Obj()
}

func TestReferencesOfJobs(t *testing.T) {
	var got []string
	for _, r := range (jobChecks{}).references(namesAll("ml")) {
		got = append(got, strings.TrimSpace(r.Field+" "+r.Kind.Kind+" "+r.Namespace+"/"+r.Name+" "+r.Key))
	}
	assert.Equal(t, []string{
		"spec.gcpCredentialsSecretRef.name Secret ml/gcp",
		"spec.checkpointConfig.checkpointRepoCredentialRef.name Secret ml/registry",
		"spec.spotInstanceVMRef.name SpotInstanceVM ml/t4-spot",
		"spec.jobTemplate.spec.template.spec.containers[0].envFrom[0].configMapRef ConfigMap ml/settings",
		"spec.jobTemplate.spec.template.spec.containers[0].env[1].valueFrom.configMapKeyRef ConfigMap ml/settings a",
		"spec.jobTemplate.spec.template.spec.priorityClassName PriorityClass /urgent",
		"spec.jobTemplate.spec.template.spec.serviceAccountName ServiceAccount ml/robot",
		"spec.jobTemplate.spec.template.spec.volumes[0].persistentVolumeClaim.claimName PersistentVolumeClaim ml/data",
		"spec.jobTemplate.spec.template.spec.volumes[1].configMap.name ConfigMap ml/settings",
	}, got)
	assert.Empty(t, (jobChecks{}).references(builders.SpotInstanceJob("plain").Obj()))
}

// aValidator asks a cluster whose answers the test makes up: what a real one answers is the matter of test/suites/webhook.
func aValidator(t *testing.T, answers interceptor.Funcs) *validator[*spotv1alpha1.SpotInstanceJob] {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, spotv1alpha1.AddToScheme(scheme))
	return &validator[*spotv1alpha1.SpotInstanceJob]{
		decoder: admission.NewDecoder(scheme),
		asker: review.Asker{
			Client: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(answers).Build(), Patience: 50 * time.Millisecond,
			May: func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) (bool, error) {
				return true, nil
			},
		},
		checks: jobChecks{Options{
			Replica: func(job *spotv1alpha1.SpotInstanceJob) *batchv1.Job {
				return &batchv1.Job{Spec: job.Spec.JobTemplate.Spec}
			},
			TakesCheckpoints: func(context.Context) (bool, error) { return false, errors.New("no answer") },
		}},
	}
}

func request(t *testing.T, operation admissionv1.Operation, object, old *spotv1alpha1.SpotInstanceJob) admission.Request {
	t.Helper()
	raw := func(job *spotv1alpha1.SpotInstanceJob) runtime.RawExtension {
		if job == nil {
			return runtime.RawExtension{}
		}
		job.TypeMeta = metav1.TypeMeta{APIVersion: spotv1alpha1.GroupVersion.String(), Kind: "SpotInstanceJob"}
		text, err := json.Marshal(job)
		require.NoError(t, err)
		return runtime.RawExtension{Raw: text}
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "of-the-request", Operation: operation, Namespace: "ml", Object: raw(object), OldObject: raw(old),
	}}
}

func notFound(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, "absent")
}

// What was stored once stays changeable, and an update is told only what it brings.
func TestOfAnUpdateOnlyWhatIsNewIsTold(t *testing.T) {
	v := aValidator(t, interceptor.Funcs{Get: notFound})
	foreign := func(b *builders.SpotInstanceJobBuilder) *spotv1alpha1.SpotInstanceJob {
		return b.Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
			s.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp", Namespace: "other"}
		}).Obj()
	}
	before := builders.SpotInstanceJob("sweep").On("t4-spot").Obj()
	response := v.Handle(t.Context(), request(t, "UPDATE", builders.SpotInstanceJob("sweep").On("l4-spot").Obj(), before))
	assert.True(t, response.Allowed)
	assert.Equal(t, []string{
		`spec.spotInstanceVMRef.name: there is no SpotInstanceVM "l4-spot" in namespace ml: create it or correct the name; until then no spot instance is created`,
	}, response.Warnings)

	response = v.Handle(t.Context(), request(t, "UPDATE", builders.SpotInstanceJob("sweep").On("t4-spot").Replicas(3).Obj(), before))
	assert.True(t, response.Allowed)
	assert.Empty(t, response.Warnings)

	response = v.Handle(t.Context(), request(t, "UPDATE", foreign(builders.SpotInstanceJob("sweep")), before))
	assert.False(t, response.Allowed)
	assert.Equal(t, "spec.gcpCredentialsSecretRef.namespace: is other: only Secrets of the object's own namespace are read: "+
		"copy the Secret to namespace ml and remove the field", response.Result.Message)

	response = v.Handle(t.Context(), request(t, "UPDATE", foreign(builders.SpotInstanceJob("sweep").Replicas(3)), foreign(builders.SpotInstanceJob("sweep"))))
	assert.True(t, response.Allowed, "it was so before")
}

// A slow API server delays no job for long: it is admitted, with a warning of what was not checked.
func TestWhatHasNoAnswerIsTold(t *testing.T) {
	v := aValidator(t, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
		Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	})
	response := v.Handle(t.Context(), request(t, "CREATE", builders.SpotInstanceJob("sweep").On("t4-spot").Checkpoints(time.Hour).Obj(), nil))
	assert.True(t, response.Allowed)
	assert.Equal(t, []string{"could not be checked, because the API server gave no answer: spec.spotInstanceVMRef.name, whether the replicas can be created, " +
		"spec.checkpointConfig: the conditions in the status will tell"}, response.Warnings)
}

// For others than the API server the answer is from the object alone.
func TestWithoutAClusterTheObjectAloneIsChecked(t *testing.T) {
	v := aValidator(t, interceptor.Funcs{})
	v.asker = review.Asker{}
	several := builders.SpotInstanceJob("sweep").On("absent").Checkpoints(time.Hour).Template(func(s *batchv1.JobSpec) { s.Parallelism = ptr.To[int32](2) }).Obj()
	response := v.Handle(t.Context(), request(t, "CREATE", several, nil))
	assert.True(t, response.Allowed)
	assert.Equal(t, []string{"spec.checkpointConfig: no checkpoints are taken of a replica of several pods: " +
		"set parallelism and completions of spec.jobTemplate.spec to 1, or have the program save by itself"}, response.Warnings)
}

// An object that no client could read is not stored.
func TestUnreadableObjectsAreRefused(t *testing.T) {
	r := request(t, "CREATE", nil, nil)
	r.Object.Raw = []byte(`{"apiVersion": "training.training.dcnlab.com/v1alpha1", "kind": "SpotInstanceJob", "spec": {"jobTemplate": {"spec": {"template": {"spec":
		{"containers": [{"name": "a", "resources": {"limits": {"cpu": "1e1.5"}}}]}}}}}}`)
	response := aValidator(t, interceptor.Funcs{}).Handle(t.Context(), r)
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, "spec: cannot be read as a SpotInstanceJob: ")
	assert.EqualValues(t, http.StatusUnprocessableEntity, response.Result.Code)
}
