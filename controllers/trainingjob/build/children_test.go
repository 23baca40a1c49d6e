package build

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// goldenMeta is the metadata of every child but the claim.
const goldenMeta = `
  namespace: default
  labels: {training-job: advanced-training, trainingjob: advanced-training}
  ownerReferences:
  - {apiVersion: ml.example.com/v1, kind: TrainingJob, name: advanced-training, uid: uid-of-advanced-training, controller: true, blockOwnerDeletion: true}
`

const goldenJob = `
metadata:
  name: advanced-training-training
  annotations: {ml.example.com/generation: "1", ml.example.com/restart-attempt: "2", ml.example.com/start: "2"}` + goldenMeta + `
spec:
  completionMode: Indexed
  completions: 8
  parallelism: 8
  backoffLimit: 0
  podReplacementPolicy: Failed
  podFailurePolicy:
    rules:
    - action: FailJob
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: FailJob
      onExitCodes: {containerName: trainer, operator: NotIn, values: [0]}
  template:
    metadata:
      labels: {training-job: advanced-training, trainingjob: advanced-training}
      annotations: {ml.example.com/restart-attempt: "2", ml.example.com/start: "2"}
    spec:
      restartPolicy: Never
      subdomain: advanced-training-headless
      serviceAccountName: advanced-training-training
      enableServiceLinks: false
      terminationGracePeriodSeconds: 60
      priorityClassName: high-priority
      nodeSelector: {nvidia.com/gpu.product: A100-SXM4-80GB, node-type: gpu-large}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector:
              matchExpressions: [{key: training-job, operator: In, values: [advanced-training]}]
            topologyKey: kubernetes.io/hostname
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {type: RuntimeDefault}
      containers:
      - name: trainer
        image: nvcr.io/nvidia/pytorch:23.10-py3
        command: [python, -m, torch.distributed.run]
        args: [--nproc_per_node=4, train.py]
        ports:
        - {name: metrics, containerPort: 8080, protocol: TCP}
        - {name: master, containerPort: 29500, protocol: TCP}
        resources:
          requests: {cpu: "32", memory: 128Gi, nvidia.com/gpu: "4"}
          limits: {cpu: "64", memory: 256Gi, nvidia.com/gpu: "4"}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {drop: [ALL]}
        terminationMessagePolicy: FallbackToLogsOnError
        volumeMounts:
        - {name: config, mountPath: /etc/training, readOnly: true}
        - {name: shm, mountPath: /dev/shm}
        - {name: checkpoints, mountPath: /checkpoints}
        - {name: resume, mountPath: /resume, readOnly: true}
      volumes:
      - {name: config, configMap: {name: advanced-training-config}}
      - {name: shm, emptyDir: {medium: Memory}}
      - {name: checkpoints, persistentVolumeClaim: {claimName: advanced-training-checkpoints}}
      - {name: resume, persistentVolumeClaim: {claimName: ml-checkpoints, readOnly: true}}
`

const goldenServiceAccount = `
metadata:
  name: advanced-training-training` + goldenMeta + `
automountServiceAccountToken: false
`

const goldenHeadless = `
metadata:
  name: advanced-training-headless` + goldenMeta + `
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {training-job: advanced-training}
  ports:
  - {name: master, port: 29500, targetPort: 29500, protocol: TCP}
`

const goldenMaster = `
metadata:
  name: advanced-training-master` + goldenMeta + `
spec:
  clusterIP: None
  selector: {training-job: advanced-training, batch.kubernetes.io/job-completion-index: "0"}
  ports:
  - {name: metrics, port: 8080, targetPort: 8080, protocol: TCP}
  - {name: master, port: 29500, targetPort: 29500, protocol: TCP}
`

const goldenConfig = `
metadata:
  name: advanced-training-config` + goldenMeta + `
data:
  framework: pytorch
  model: resnet152
  dataset: imagenet
  hyperparameters.json: '{"learningRate":0.0001,"batchSize":128,"epochs":100,"optimizer":"adamw","warmupSteps":1000,"gradientAccumulationSteps":4,"mixedPrecision":true,"additionalParams":{"label_smoothing":"0.1","weight_decay":"0.01"}}'
  networking.json: '{"backend":"nccl","masterAddress":"advanced-training-training-0.advanced-training-headless","masterPort":29500,"rdmaEnabled":false,"worldSize":8}'
`

const goldenClaim = `
metadata:
  name: advanced-training-checkpoints
  namespace: default
  labels: {training-job: advanced-training, trainingjob: advanced-training}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 10Gi}}
`

func TestChildrenOfTheAdvancedExample(t *testing.T) {
	job := builders.AdvancedTraining(t)
	workers := Workers(job, Settings{WorkerImage: "not used"}, 2)
	trainer := &workers.Spec.Template.Spec.Containers[0]
	assert.Equal(t, Environment(job), trainer.Env)
	trainer.Env = nil // has tests of its own, as have the containers of the agent
	assert.Equal(t, []string{"tensorboard", "checkpoint-restore", "checkpoint-agent"}, containerNames(workers.Spec.Template.Spec.InitContainers))
	workers.Spec.Template.Spec.InitContainers = nil

	for name, child := range map[string]struct {
		golden string
		got    client.Object
		want   client.Object
	}{
		"Job":                   {goldenJob, workers, &batchv1.Job{}},
		"ServiceAccount":        {goldenServiceAccount, ServiceAccount(job), &corev1.ServiceAccount{}},
		"headless Service":      {goldenHeadless, HeadlessService(job), &corev1.Service{}},
		"master Service":        {goldenMaster, MasterService(job), &corev1.Service{}},
		"ConfigMap":             {goldenConfig, ConfigMap(job), &corev1.ConfigMap{}},
		"PersistentVolumeClaim": {goldenClaim, Claim(job), &corev1.PersistentVolumeClaim{}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, yaml.UnmarshalStrict([]byte(child.golden), child.want))
			assert.Empty(t, cmp.Diff(child.want, child.got))
		})
	}
}

func TestWorkersWithoutAnImageGetTheOperatorsOwn(t *testing.T) {
	workers := Workers(builders.TrainingJob("bert").Obj(), Settings{WorkerImage: "worker:1", AgentImage: "agent:1"}, 0)
	assert.Equal(t, "worker:1", workers.Spec.Template.Spec.Containers[0].Image)
}

func TestAClaimIsDeletedWithItsJobOnlyWhenTheSpecSaysSo(t *testing.T) {
	size := resource.MustParse("50Gi")
	job := builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) { s.Checkpoint.Storage.Size = &size }).Obj()
	claim := Claim(job)
	assert.Empty(t, claim.OwnerReferences, "by default checkpoints outlive the job")
	assert.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, claim.Spec.AccessModes)
	assert.Equal(t, size, claim.Spec.Resources.Requests[corev1.ResourceStorage])

	job.Spec.Checkpoint.Storage.RetentionPolicy = mlv1.ClaimDelete
	assert.Equal(t, Meta(job, "").OwnerReferences, Claim(job).OwnerReferences)
}
