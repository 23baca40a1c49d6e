package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

var agentSettings = Settings{WorkerImage: "worker:1", AgentImage: "agent:1"}

// inStorage has a job keep its checkpoints in a storage.
func podOf(job *mlv1.TrainingJob, attempt int32) corev1.PodSpec {
	return Workers(job, agentSettings, attempt).Spec.Template.Spec
}

func variables(container corev1.Container) map[string]string {
	env := map[string]string{}
	for _, variable := range container.Env {
		env[variable.Name] = variable.Value
		if variable.ValueFrom != nil {
			env[variable.Name] = variable.ValueFrom.FieldRef.FieldPath
		}
	}
	return env
}

func containerNames(containers []corev1.Container) []string {
	var names []string
	for _, container := range containers {
		names = append(names, container.Name)
	}
	return names
}

const goldenRestore = `
name: checkpoint-restore
image: agent:1
args: [checkpoint-agent, restore]
env:
- {name: CHECKPOINT_DIR, value: /checkpoints/bert/uid-of-bert}
- name: REPLICA_INDEX
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
- name: CHECKPOINT_ATTEMPT
  valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['ml.example.com/start']"}}
- {name: CHECKPOINT_RETENTION, value: "3"}
- {name: AGENT_PORT, value: "9464"}
- {name: CHECKPOINT_STORE, value: "s3://models/team%20a/default/bert/uid-of-bert?endpoint=http%3A%2F%2Fminio%3A9000&region=eu-west-1"}
- {name: CHECKPOINT_CREDENTIALS, value: /var/run/checkpoint-credentials}
- {name: RESUME_CREDENTIALS, value: /var/run/resume-credentials}
- {name: RESUME_FROM, value: "s3://old/run?endpoint=http%3A%2F%2Fminio%3A9000&region=eu-west-1"}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 256Mi}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
terminationMessagePolicy: File
volumeMounts:
- {name: checkpoints, mountPath: /checkpoints}
- {name: checkpoint-credentials, mountPath: /var/run/checkpoint-credentials, readOnly: true}
- {name: resume-credentials, mountPath: /var/run/resume-credentials, readOnly: true}
`

func TestAgentOfAJobInAnObjectStore(t *testing.T) {
	pod := podOf(builders.TrainingJob("bert").InStorage(builders.S3Storage()).ResumeFrom("s3://old/run").Obj(), 0)

	require.Equal(t, []string{"checkpoint-restore", "checkpoint-agent"}, containerNames(pod.InitContainers))
	var want corev1.Container
	require.NoError(t, yaml.UnmarshalStrict([]byte(goldenRestore), &want))
	assert.Empty(t, cmp.Diff(want, pod.InitContainers[0]))

	sync := pod.InitContainers[1]
	assert.Equal(t, ptr.To(corev1.ContainerRestartPolicyAlways), sync.RestartPolicy, "it is a sidecar")
	assert.Equal(t, []string{"checkpoint-agent", "sync"}, sync.Args)
	assert.Equal(t, []corev1.ContainerPort{{Name: "checkpoints", ContainerPort: 9464, Protocol: corev1.ProtocolTCP}}, sync.Ports)
	assert.NotContains(t, variables(sync), "RESUME_FROM")

	assert.Equal(t, ptr.To[int64](300), pod.TerminationGracePeriodSeconds, "the last checkpoint must reach the store")
	volumes := map[string]corev1.VolumeSource{}
	for _, volume := range pod.Volumes {
		volumes[volume.Name] = volume.VolumeSource
	}
	secret := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys", Optional: ptr.To(true)}}
	assert.Equal(t, secret, volumes["checkpoint-credentials"])
	assert.Equal(t, secret, volumes["resume-credentials"], "the same kind of store has the same credentials")
	assert.NotNil(t, volumes["checkpoints"].EmptyDir)

	worker := pod.Containers[0]
	for _, mount := range worker.VolumeMounts {
		assert.NotContains(t, mount.Name, "credentials", "the training has no use for them")
	}
	env := variables(worker)
	assert.Equal(t, "/checkpoints/bert/uid-of-bert", env["CHECKPOINT_DIR"])
	assert.Equal(t, "0", env["CHECKPOINT_RETENTION"], "the agent prunes what is in the store")
	assert.Equal(t, "/checkpoints/bert/uid-of-bert/.resume", env["RESUME_FROM"])
}

func TestWhereCheckpointsAreKept(t *testing.T) {
	nfs := mlv1.CheckpointStorage{Type: mlv1.StorageNFS, NFSServer: "filer", NFSPath: "/export/ml"}
	for name, test := range map[string]struct {
		job    *builders.TrainingJobBuilder
		store  string
		volume corev1.VolumeSource
		grace  int64
	}{
		"a claim": {builders.TrainingJob("bert").Checkpoints(), "", ClaimSource("bert-checkpoints", false), 60},
		"nfs":     {builders.TrainingJob("bert").InStorage(nfs), "", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "filer", Path: "/export/ml"}}, 60},
		"gcs": {builders.TrainingJob("bert").InStorage(mlv1.CheckpointStorage{Type: mlv1.StorageGCS, GCSBucket: "b"}),
			"gs://b/default/bert/uid-of-bert", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, 300},
		"azure": {builders.TrainingJob("bert").InStorage(mlv1.CheckpointStorage{Type: mlv1.StorageAzure, AzureContainer: "c", AzureAccount: "acc", Prefix: "/x/y/"}),
			"azblob://c/x/y/default/bert/uid-of-bert?account=acc", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, 300},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(test.job.Obj(), 0)
			require.Equal(t, []string{"checkpoint-agent"}, containerNames(pod.InitContainers), "there is nothing to restore yet")
			assert.Equal(t, test.store, variables(pod.InitContainers[0])["CHECKPOINT_STORE"])
			assert.Contains(t, pod.Volumes, corev1.Volume{Name: "checkpoints", VolumeSource: test.volume})
			assert.Equal(t, test.grace, *pod.TerminationGracePeriodSeconds)
		})
	}
}

func TestWhatAJobResumesFrom(t *testing.T) {
	off := func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Enabled = ptr.To(false) }
	for name, test := range map[string]struct {
		job             *builders.TrainingJobBuilder
		restore, worker string
		optional        bool
		resume          *corev1.VolumeSource
		secret          string
	}{
		"a path in its volume": {
			job: builders.TrainingJob("bert").Checkpoints().ResumeFrom("/old/run"), restore: "/checkpoints/old/run", worker: "/checkpoints/old/run",
		},
		"a claim": {
			job:     builders.TrainingJob("bert").Checkpoints().ResumeFrom("pvc://old/run"),
			restore: "/resume/run", worker: "/resume/run", resume: ptr.To(ClaimSource("old", true)),
		},
		"the newest of its name": {
			job: builders.TrainingJob("bert").Checkpoints().ResumeFrom("latest"), restore: "/checkpoints/bert", worker: "/checkpoints/bert", optional: true,
		},
		"the newest of its name in a store": {
			job:     builders.TrainingJob("bert").InStorage(mlv1.CheckpointStorage{Type: mlv1.StorageGCS, GCSBucket: "b", SecretRef: &mlv1.SecretReference{Name: "k"}}).ResumeFrom("latest"),
			restore: "gs://b/default/bert", worker: "/checkpoints/bert/uid-of-bert/.resume", optional: true, secret: "k",
		},
		"another kind of store, with credentials of its own": {
			job: builders.TrainingJob("bert").InStorage(builders.S3Storage()).ResumeFrom("gs://b/run").Spec(func(s *mlv1.TrainingJobSpec) {
				s.Checkpoint.ResumeSecretRef = &mlv1.SecretReference{Name: "google"}
			}),
			restore: "gs://b/run", worker: "/checkpoints/bert/uid-of-bert/.resume", secret: "google",
		},
		"another kind of store, with workload identity": {
			job: builders.TrainingJob("bert").InStorage(builders.S3Storage()).ResumeFrom("gs://b/run"), restore: "gs://b/run", worker: "/checkpoints/bert/uid-of-bert/.resume",
		},
		"a store with settings of its own": {
			job:     builders.TrainingJob("bert").InStorage(builders.S3Storage()).ResumeFrom("s3://b/run?region=us-east-1"),
			restore: "s3://b/run?region=us-east-1", worker: "/checkpoints/bert/uid-of-bert/.resume", secret: "keys",
		},
		"a store, without saving checkpoints": {
			job:     builders.TrainingJob("bert").Checkpoints().ResumeFrom("s3://b/run?region=us-east-1").Spec(off),
			restore: "s3://b/run?region=us-east-1", worker: "/checkpoints/bert/uid-of-bert/.resume",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			pod := podOf(job, 0)
			restore := pod.InitContainers[0]
			require.Equal(t, "checkpoint-restore", restore.Name)
			env, worker := variables(restore), variables(pod.Containers[0])
			assert.Equal(t, test.restore, env["RESUME_FROM"])
			assert.Equal(t, test.worker, worker["RESUME_FROM"])
			for _, variable := range []string{env["RESUME_OPTIONAL"], worker["RESUME_OPTIONAL"]} {
				assert.Equal(t, test.optional, variable == "true")
			}
			var resume *corev1.VolumeSource
			secret := ""
			for _, volume := range pod.Volumes {
				switch volume.Name {
				case "resume":
					resume = &volume.VolumeSource
				case "resume-credentials":
					secret = volume.Secret.SecretName
				}
			}
			assert.Equal(t, test.resume, resume)
			assert.Equal(t, test.secret, secret)
			if !CheckpointsEnabled(job) {
				assert.Equal(t, []string{"checkpoint-restore"}, containerNames(pod.InitContainers))
				assert.NotContains(t, worker, "CHECKPOINT_DIR")
			}
		})
	}
}

func TestWhenACheckpointIsBroughtBack(t *testing.T) {
	job := builders.TrainingJob("bert").Checkpoints()
	first := containerNames(podOf(job.Obj(), 0).InitContainers)
	assert.Equal(t, []string{"checkpoint-agent"}, first, "a first attempt has none")
	both := []string{"checkpoint-restore", "checkpoint-agent"}
	assert.Equal(t, both, containerNames(podOf(job.Obj(), 1).InitContainers), "after a restart")
	trained := job.Status(mlv1.TrainingJobStatus{StartTime: ptr.To(metav1.NewTime(builders.Noon))})
	assert.Equal(t, both, containerNames(podOf(trained.Obj(), 0).InitContainers), "after a suspension")

	assert.Empty(t, podOf(builders.TrainingJob("bert").Obj(), 1).InitContainers, "a job without checkpoints has no agent")
}

func TestTheNameOfAnotherJobStandsForWhereItKeepsItsCheckpoints(t *testing.T) {
	from := func(b *builders.TrainingJobBuilder) *builders.TrainingJobBuilder {
		return b.Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.ResumeFrom = "old" })
	}
	other := func(b *builders.TrainingJobBuilder) *mlv1.TrainingJob {
		job := b.Obj()
		job.Name, job.UID = "old", "uid-of-old"
		return job
	}
	nfs := mlv1.CheckpointStorage{Type: mlv1.StorageNFS, NFSServer: "filer", NFSPath: "/export/ml"}
	for name, test := range map[string]struct {
		job, other *builders.TrainingJobBuilder
		from       string
		restore    string
		secret     string
	}{
		"on a claim of its own":      {builders.TrainingJob("bert").Checkpoints(), builders.TrainingJob("old").Checkpoints(), "pvc://old-checkpoints/old/uid-of-old", "/resume/old/uid-of-old", ""},
		"on the same claim":          {builders.TrainingJob("bert").Claim("shared"), builders.TrainingJob("old").Claim("shared"), "/old/uid-of-old", "/checkpoints/old/uid-of-old", ""},
		"on an NFS server":           {builders.TrainingJob("bert").Checkpoints(), builders.TrainingJob("bert").InStorage(nfs), "nfs://filer/export/ml#old/uid-of-old", "/resume/old/uid-of-old", ""},
		"on the same NFS server":     {builders.TrainingJob("bert").InStorage(nfs), builders.TrainingJob("bert").InStorage(nfs), "/old/uid-of-old", "/checkpoints/old/uid-of-old", ""},
		"in a store":                 {builders.TrainingJob("bert").Checkpoints(), builders.TrainingJob("bert").InStorage(builders.S3Storage()), "", "s3://models/team%20a/default/old/uid-of-old?endpoint=http%3A%2F%2Fminio%3A9000&region=eu-west-1", "keys"},
		"in a store without secrets": {builders.TrainingJob("bert").InStorage(builders.S3Storage()), builders.TrainingJob("bert").InStorage(mlv1.CheckpointStorage{Type: mlv1.StorageGCS, GCSBucket: "b"}), "", "gs://b/default/old/uid-of-old", ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := from(test.job).Obj()
			became := ResolveResume(job, SourceOf(other(test.other)))
			if test.from != "" {
				assert.Equal(t, test.from, ResumeFrom(became))
			}
			env := variables(podOf(became, 0).InitContainers[0])
			assert.Equal(t, test.restore, env["RESUME_FROM"])
			assert.Equal(t, test.secret, ResumeSecret(became))
			assert.Equal(t, "old", ResumeFrom(job), "the job itself is not changed")
		})
	}
	assert.Nil(t, SourceOf(builders.TrainingJob("old").Obj()), "it keeps none")
}

func TestTheAgentsPortMakesWay(t *testing.T) {
	job := builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Monitoring.MetricsPort, s.Networking.MasterPort = 9464, 9465
	}).Obj()
	assert.Equal(t, int32(9466), AgentPort(job, agentSettings))
}

func TestTheAgentTakesLittleAndKeepsThePodsClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	with := func(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
		job := builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
			s.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
		}).Obj()
		return podOf(job, 0).InitContainers[0].Resources
	}
	small := list("10m", "32Mi")
	assert.Equal(t, corev1.ResourceRequirements{Requests: small, Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}},
		with(list("1", "1Gi"), nil))
	assert.Equal(t, corev1.ResourceRequirements{Requests: small, Limits: list("1", "256Mi")}, with(list("1", "1Gi"), list("2", "1Gi")))
	guaranteed := list("250m", "256Mi")
	for _, requests := range []corev1.ResourceList{nil, list("2", "1Gi")} {
		assert.Equal(t, corev1.ResourceRequirements{Requests: guaranteed, Limits: guaranteed}, with(requests, list("2", "1Gi")))
	}
}

func TestPodsThatCanFollowOthersOfTheirJobBringTheCheckpointBack(t *testing.T) {
	both := []string{"checkpoint-restore", "checkpoint-agent"}
	queued := builders.TrainingJob("bert").InStorage(builders.S3Storage()).Labels(map[string]string{KueueQueueLabel: "team"}).Obj()
	assert.Equal(t, both, containerNames(podOf(queued, 0).InitContainers), "Kueue stops and starts a Job")
	resized := builders.TrainingJob("bert").InStorage(builders.S3Storage()).Workers(2).Elastic(1, 4).Obj()
	assert.Equal(t, both, containerNames(podOf(resized, 0).InitContainers), "an elastic Job replaces its pods")
}
