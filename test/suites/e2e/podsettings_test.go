//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// checkVolumes is a program that succeeds only when it sees all that the settings give it.
const checkVolumes = `
import os, pathlib, time
read = lambda path: pathlib.Path(path).read_text().strip()
assert read("/secrets/key") == "of-the-secret", "the Secret"
assert read("/projected/key") == "of-the-secret" and "team=" in read("/projected/labels"), "the projected volume"
assert pathlib.Path("/image/usr/bin/python3").exists(), "the image"
assert read("/shared/prepared") == "by the init container", "the init container"
assert os.environ["FROM_key"] == "of-the-secret", "the variables"
assert os.getcwd() == "/code", "the directory"
pathlib.Path("/data/seen-by-" + os.environ["SEEN_BY"]).write_text("yes")
while read("/shared/starts").count("start") < 2: # of the sidecar, which ends once
    time.sleep(0.1)
`

// podSettings have a volume of each kind that a node has, an init container and a sidecar whose process ends once.
func podSettings(t *testing.T) podtemplate.Settings {
	t.Helper()
	secret := corev1.LocalObjectReference{Name: "keys"}
	shared := corev1.VolumeMount{Name: "shared", MountPath: "/shared"}
	small := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("20m"), "memory": resource.MustParse("16Mi")}}
	return podtemplate.Settings{
		Volumes: []corev1.Volume{
			{Name: "code", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "code"}}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
			{Name: "secrets", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret.Name}}},
			{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: secret}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
					{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				}}},
			}}}},
			{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: workerImage(t), PullPolicy: corev1.PullIfNotPresent}}},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "code", MountPath: "/code"}, {Name: "data", MountPath: "/data"}, {Name: "secrets", MountPath: "/secrets"},
			{Name: "projected", MountPath: "/projected"}, shared, {Name: "image", MountPath: "/image"},
		},
		EnvFrom:    []corev1.EnvFromSource{{Prefix: "FROM_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}}},
		WorkingDir: "/code",
		PodTemplate: &podtemplate.PodTemplate{
			Labels: map[string]string{"team": "vision"},
			InitContainers: []corev1.Container{
				{
					Name: "prepare", Image: workerImage(t), Command: []string{"sh", "-c", "echo by the init container > /shared/prepared"},
					VolumeMounts: []corev1.VolumeMount{shared}, Resources: small,
				},
				{
					Name: "beats", Image: workerImage(t), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
					Command:      []string{"sh", "-c", "echo start >> /shared/starts; [ $(wc -l < /shared/starts) -gt 1 ] || exit 1; exec sleep 3600"},
					VolumeMounts: []corev1.VolumeMount{shared}, Resources: small,
				},
			},
		},
	}
}

// volumesIn makes what the settings mount.
func volumesIn(t *testing.T, ns string) {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta("code"), Data: map[string]string{"check.py": checkVolumes}},
		&corev1.Secret{ObjectMeta: meta("keys"), StringData: map[string]string{"key": "of-the-secret"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("data"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		}},
	} {
		require.NoError(t, cluster.Create(t.Context(), object))
	}
}

// A job, an AIJob and a stage of a workflow see the same volumes and variables, and their sidecar does not keep them from ending.
func TestPodsHaveTheSettingsOfTheirSpec(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	volumesIn(t, ns)
	settings := podSettings(t)

	job := digits(ns, "settings").obj()
	job.Spec.NumWorkers, job.Spec.Checkpoint = 1, nil
	job.Spec.Command, job.Spec.Settings = []string{"python3", "check.py"}, settings
	job.Spec.Env = append(job.Spec.Env, corev1.EnvVar{Name: "SEEN_BY", Value: "trainingjob"})
	require.NoError(t, cluster.Create(t.Context(), job))

	single := pythonJob(t, ns, "single", "").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Command, s.Settings, s.Env = []string{"python3", "check.py"}, settings, []corev1.EnvVar{{Name: "SEEN_BY", Value: "aijob"}}
	}).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), single))

	require.NoError(t, cluster.Create(t.Context(), &aiplatformv1alpha1.Agent{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "checks"},
		Spec: aiplatformv1alpha1.AgentSpec{
			Image: workerImage(t), Command: []string{"python3", "check.py"}, Env: []corev1.EnvVar{{Name: "SEEN_BY", Value: "stage"}}, Settings: settings,
		},
	}))
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "checks"}}
	workflow.Spec.Stages = []aiplatformv1alpha1.Stage{{Name: "check", Agent: "checks"}}
	require.NoError(t, cluster.Create(t.Context(), workflow))

	done := completes(t, job)
	sidecar := done.Spec.PodTemplate.InitContainers[1].Resources.Requests.Cpu()
	own := done.Spec.Resources.Requests.Cpu()
	own.Add(*sidecar)
	assert.Zero(t, own.Cmp(*done.Status.Resources.CPU), "the sidecar is counted: %s", done.Status.Resources.CPU)
	awaitAIJob(t, single, aiplatformv1alpha1.AIJobSucceeded)
	ends(t, workflow, aiplatformv1alpha1.WorkflowSucceeded)

	look := pythonJob(t, ns, "look", `import os; assert len([f for f in os.listdir("/data") if f.startswith("seen-by-")]) == 3, os.listdir("/data")`).
		Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
			s.Volumes, s.VolumeMounts = settings.Volumes[1:2], settings.VolumeMounts[1:2]
		}).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), look))
	awaitAIJob(t, look, aiplatformv1alpha1.AIJobSucceeded)
}

func TestAnInitContainerThatFailsIsTold(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "unprepared").obj()
	job.Spec.NumWorkers, job.Spec.Checkpoint, job.Spec.FailurePolicy.BackoffLimit = 1, nil, ptr.To[int32](1)
	job.Spec.PodTemplate = &podtemplate.PodTemplate{InitContainers: []corev1.Container{{
		Name: "prepare", Image: workerImage(t), Command: []string{"sh", "-c", "echo the bucket has no such file; exit 1"},
	}}}
	failed := fails(t, job)
	assert.EqualValues(t, 1, failed.Status.RestartCount)
	assert.Equal(t, reasons.InitContainerFailed, failed.Status.LastFailure.Reason)
	assert.Contains(t, failed.Status.LastFailure.Output, "the bucket has no such file")
	assert.Contains(t, failed.Status.FailureReason, "the init container prepare ended with exit code 1: the bucket has no such file")
}

func TestSharedMemoryHasItsSize(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "shared-memory").obj()
	job.Spec.NumWorkers, job.Spec.Checkpoint, job.Spec.FailurePolicy.BackoffLimit = 1, nil, ptr.To[int32](0)
	job.Spec.Command = []string{"python3", "-c", `open("/dev/shm/large", "wb").write(bytes(128 << 20))`}
	job.Spec.PodTemplate = &podtemplate.PodTemplate{ShmSize: ptr.To(resource.MustParse("64Mi"))}
	assert.Contains(t, fails(t, job).Status.FailureReason, "No space left on device")
}
