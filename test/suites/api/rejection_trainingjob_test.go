package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const trainingJob = `
apiVersion: ml.example.com/v1
kind: TrainingJob
metadata:
  name: good
spec:
  model: resnet50
  dataset: imagenet
  numWorkers: 2
  gpusPerWorker: 1
`

// A mistake in a TrainingJob is refused at once, with words that name the field and say what to do.
func TestTrainingJobRejections(t *testing.T) {
	tests := []rejection{
		// The job itself
		{"a name that is too long", `metadata: {name: ` + strings.Repeat("a", 51) + `}`, "spec", "metadata.name: must be at most 50 characters"},
		{"a name that starts with a digit", `metadata: {name: 1st}`, "spec", "choose a shorter or simpler name"},
		{"a name with a dot", `metadata: {name: a.b}`, "spec", "choose a shorter or simpler name"},
		{"a job without spec", `spec: null`, "spec", "Required value"},
		{"a job without model", `spec: {model: null}`, "spec.model", "Required value"},
		{"an empty model", `spec: {model: ""}`, "spec.model", "should be at least 1 chars long"},
		{"a model of 254 characters", `spec: {model: ` + strings.Repeat("m", 254) + `}`, "spec.model", "may not be more than 253 bytes"},
		{"a number as model", `spec: {model: 50}`, "spec.model", "must be of type string"},
		{"a job without data set", `spec: {dataset: null}`, "spec.dataset", "Required value"},
		{"an empty data set", `spec: {dataset: ""}`, "spec.dataset", "should be at least 1 chars long"},
		{"a misspelled field", `spec: {numWorker: 4}`, "spec.numWorker", "unknown field"},

		// Workers
		{"a job without number of workers", `spec: {numWorkers: null}`, "spec.numWorkers", "Required value"},
		{"no worker", `spec: {numWorkers: 0}`, "spec.numWorkers", "should be greater than or equal to 1"},
		{"101 workers", `spec: {numWorkers: 101}`, "spec.numWorkers", "should be less than or equal to 100"},
		{"two and a half workers", `spec: {numWorkers: 2.5}`, "spec.numWorkers", "must be of type int32"},
		{"a number of workers in quotes", `spec: {numWorkers: "2"}`, "spec.numWorkers", "must be of type integer"},
		{"fewer than no GPUs", `spec: {gpusPerWorker: -1}`, "spec.gpusPerWorker", "should be greater than or equal to 0"},
		{"65 GPUs per worker", `spec: {gpusPerWorker: 65}`, "spec.gpusPerWorker", "should be less than or equal to 64"},
		{"an unknown framework", `spec: {framework: caffe}`, "spec.framework", `supported values: "pytorch", "tensorflow", "jax", "ray", "mpi", "xgboost"`},
		{"a framework in capitals", `spec: {framework: PyTorch}`, "spec.framework", `"pytorch"`},
		{"an image with a blank", `spec: {image: "pytorch latest"}`, "spec.image", "should match"},
		{"an empty image", `spec: {image: ""}`, "spec.image", "should be at least 1 chars long"},
		{"an unknown pull policy", `spec: {imagePullPolicy: Sometimes}`, "spec.imagePullPolicy", `supported values: "Always", "IfNotPresent", "Never"`},
		{"a command that is no list", `spec: {command: python train.py}`, "spec.command", "must be of type array"},
		{"65 words of command", `spec: {command: [` + strings.Repeat("a,", 65) + `]}`, "spec.command", "must have at most 64 items"},
		{"257 arguments", `spec: {args: [` + strings.Repeat("a,", 257) + `]}`, "spec.args", "must have at most 256 items"},
		{"a variable twice", `spec: {env: [{name: A, value: "1"}, {name: A, value: "2"}]}`, "spec.env[1]", "Duplicate value"},
		{"a variable without name", `spec: {env: [{value: "1"}]}`, "spec.env[0].name", "Required value"},
		{"a number as value of a variable", `spec: {env: [{name: A, value: 1}]}`, "spec.env[0].value", "must be of type string"},
		{"a misspelled source of a variable", `spec: {env: [{name: A, valueFrom: {secretRef: {name: s, key: k}}}]}`, "spec.env[0].valueFrom.secretRef", "unknown field"},
		{"a pull secret twice", `spec: {imagePullSecrets: [{name: a}, {name: a}]}`, "spec.imagePullSecrets[1]", "Duplicate value"},
		{"memory in words", `spec: {resources: {limits: {memory: lots}}}`, "spec.resources.limits.memory", "should match"},
		{"GPU limits that fit neither a worker nor the job", `spec: {resources: {limits: {nvidia.com/gpu: 3}}}`, "spec.resources.limits",
			"3 is neither spec.gpusPerWorker (1, per worker) nor spec.numWorkers x spec.gpusPerWorker (2, the whole job): remove it"},
		{"GPU requests that fit neither a worker nor the job", `spec: {resources: {requests: {nvidia.com/gpu: "8"}}}`, "spec.resources.requests",
			"8 is neither spec.gpusPerWorker (1, per worker) nor spec.numWorkers x spec.gpusPerWorker (2, the whole job): remove it"},
		{"a request above its limit", `spec: {resources: {requests: {memory: 64Gi}, limits: {memory: 32Gi}}}`, "spec.resources.requests", "lower the request or raise the limit"},
		{"GPU requests that differ from the limit", `spec: {resources: {requests: {nvidia.com/gpu: 2}, limits: {nvidia.com/gpu: 1}}}`, "spec.resources.requests", "set both to the same number or remove one"},
		{"a negative amount of CPU", `spec: {resources: {limits: {cpu: -1}}}`, "spec.resources.limits", "write for example cpu: 500m"},
		{"memory with a broken exponent", `spec: {resources: {requests: {memory: 1e1.5}}}`, "spec.resources.requests", "write for example cpu: 500m, memory: 32Gi"},
		{"a device with a broken exponent", `spec: {resources: {limits: {rdma/hca: 1e1.5}}}`, "spec.resources.limits.rdma/hca", "should match"},
		{"half a GPU", `spec: {resources: {limits: {nvidia.com/gpu: "0.5"}}}`, "spec.resources.limits", "0.5 is neither spec.gpusPerWorker (1, per worker)"},
		{"a variable with an empty name", `spec: {env: [{name: "", value: x}]}`, "spec.env", "give it one or remove it"},
		{"a variable with two values", `spec: {env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`, "spec.env", "keep one of the two"},
		{"a service account with blanks", `spec: {serviceAccountName: My Account}`, "spec.serviceAccountName", "should match"},
		{"an empty service account", `spec: {serviceAccountName: ""}`, "spec.serviceAccountName", "should be at least 1 chars long"},
		{"a misspelled security setting", `spec: {securityContext: {runAsUsr: 1000}}`, "spec.securityContext.runAsUsr", "unknown field"},
		{"a user in words", `spec: {securityContext: {runAsUser: root}}`, "spec.securityContext.runAsUser", "must be of type integer"},

		// Hyperparameters
		{"a learning rate of 0", `spec: {hyperparameters: {learningRate: 0}}`, "spec.hyperparameters.learningRate", "should be greater than 0"},
		{"a negative learning rate", `spec: {hyperparameters: {learningRate: -0.1}}`, "spec.hyperparameters.learningRate", "should be greater than 0"},
		{"a learning rate in quotes", `spec: {hyperparameters: {learningRate: "0.1"}}`, "spec.hyperparameters.learningRate", "must be of type number"},
		{"an empty batch", `spec: {hyperparameters: {batchSize: 0}}`, "spec.hyperparameters.batchSize", "should be greater than or equal to 1"},
		{"no epoch", `spec: {hyperparameters: {epochs: 0}}`, "spec.hyperparameters.epochs", "should be greater than or equal to 1"},
		{"an unknown optimizer", `spec: {hyperparameters: {optimizer: lion}}`, "spec.hyperparameters.optimizer", `supported values: "adam", "sgd", "adamw", "rmsprop"`},
		{"negative warm-up", `spec: {hyperparameters: {warmupSteps: -1}}`, "spec.hyperparameters.warmupSteps", "should be greater than or equal to 0"},
		{"no accumulation step", `spec: {hyperparameters: {gradientAccumulationSteps: 0}}`, "spec.hyperparameters.gradientAccumulationSteps", "should be greater than or equal to 1"},
		{"mixed precision in words", `spec: {hyperparameters: {mixedPrecision: "on"}}`, "spec.hyperparameters.mixedPrecision", "must be of type boolean"},
		{"an unknown hyperparameter", `spec: {hyperparameters: {momentum: 0.9}}`, "spec.hyperparameters.momentum", "unknown field"},
		{"a parameter that is no variable name", `spec: {hyperparameters: {additionalParams: {weight decay: "0.1"}}}`, "spec.hyperparameters.additionalParams",
			"a name cannot be made an environment variable: use letters, digits"},
		{"a number as additional parameter", `spec: {hyperparameters: {additionalParams: {decay: 0.1}}}`, "spec.hyperparameters.additionalParams.decay", "must be of type string"},
		{"a parameter of 4097 characters", `spec: {hyperparameters: {additionalParams: {text: ` + strings.Repeat("x", 4097) + `}}}`,
			"spec.hyperparameters.additionalParams.text", "may not be more than 4096 bytes"},

		// Checkpoints
		{"a checkpoint every 0 epochs", `spec: {checkpoint: {frequency: 0}}`, "spec.checkpoint.frequency", "should be greater than or equal to 1"},
		{"a checkpoint every 5 seconds", `spec: {checkpoint: {interval: 5s}}`, "spec.checkpoint.interval", "is less than 10s or more than 168h: choose a time between"},
		{"an interval in words", `spec: {checkpoint: {interval: often}}`, "spec.checkpoint.interval", "(ms|s|m|h)"},
		{"an interval in seconds without unit", `spec: {checkpoint: {interval: 900}}`, "spec.checkpoint.interval", "must be of type duration"},
		{"an interval in days", `spec: {checkpoint: {interval: 1d}}`, "spec.checkpoint.interval", "(ms|s|m|h)"},
		{"an interval in weeks, spelt out", `spec: {checkpoint: {interval: 2 weeks}}`, "spec.checkpoint.interval", "(ms|s|m|h)"},
		{"an interval below zero", `spec: {checkpoint: {interval: -15m}}`, "spec.checkpoint.interval", "(ms|s|m|h)"},
		{"an interval of a year", `spec: {checkpoint: {interval: 8760h}}`, "spec.checkpoint.interval", "is less than 10s or more than 168h: choose a time between"},
		{"no checkpoint to keep", `spec: {checkpoint: {retention: 0}}`, "spec.checkpoint.retention", "should be greater than or equal to 1"},
		{"1001 checkpoints to keep", `spec: {checkpoint: {retention: 1001}}`, "spec.checkpoint.retention", "should be less than or equal to 1000"},
		{"resuming from the web", `spec: {checkpoint: {resumeFrom: "https://example.com/c"}}`, "spec.checkpoint.resumeFrom", "write it as one of these"},
		{"resuming from a relative path", `spec: {checkpoint: {resumeFrom: runs/one}}`, "spec.checkpoint.resumeFrom", "write it as one of these"},
		{"resuming from a path upwards", `spec: {checkpoint: {resumeFrom: /data/../etc}}`, "spec.checkpoint.resumeFrom", "name the directory itself"},
		{"resuming from a job in capitals", `spec: {checkpoint: {resumeFrom: Digits}}`, "spec.checkpoint.resumeFrom", "is none of latest, the name of a TrainingJob, an absolute path"},
		{"resuming from a job with a name that is too long", `spec: {checkpoint: {resumeFrom: ` + strings.Repeat("a", 51) + `}}`, "spec.checkpoint.resumeFrom", "write it as one of these"},
		{"resuming from a path in a bucket", `spec: {checkpoint: {resumeFrom: /run, storage: {type: s3, s3Bucket: ckpt}}}`, "spec.checkpoint.resumeFrom", "is a path in a volume, but spec.checkpoint.storage.type is s3: write a URI"},
		{"resuming from S3 with an unknown setting", `spec: {checkpoint: {resumeFrom: "s3://b/run?acl=public"}}`, "spec.checkpoint.resumeFrom", "write s3://bucket/path?region=R&endpoint=U"},
		{"resuming from GCS with a setting", `spec: {checkpoint: {resumeFrom: "gs://b/run?region=x"}}`, "spec.checkpoint.resumeFrom", "has other settings after the '?'"},
		{"resuming from Azure without account", `spec: {checkpoint: {resumeFrom: "azblob://c/run"}}`, "spec.checkpoint.resumeFrom", "write azblob://container/path?account=A"},
		{"credentials for a path", `spec: {checkpoint: {resumeFrom: /run, resumeSecretRef: {name: s}}}`, "spec.checkpoint.resumeSecretRef", "remove it, or set resumeFrom to a URI"},
		{"credentials for nothing to resume from", `spec: {checkpoint: {resumeSecretRef: {name: s}}}`, "spec.checkpoint.resumeSecretRef", "remove it, or set resumeFrom to a URI"},
		{"credentials without name", `spec: {checkpoint: {resumeFrom: "s3://b/run", resumeSecretRef: {}}}`, "spec.checkpoint.resumeSecretRef.name", "Required value"},
		{"an S3 endpoint with a password", `spec: {checkpoint: {storage: {type: s3, s3Bucket: ckpt, s3Endpoint: "https://bob:hunter2@s3.example.com"}}}`,
			"spec.checkpoint.storage.s3Endpoint", "use a Secret, and name it in secretRef"},
		{"a tracking server with a password", `spec: {monitoring: {mlflowTrackingUri: "https://bob:hunter2@mlflow.example.com/x"}}`,
			"spec.monitoring.mlflowTrackingUri", "use a Secret, as the variables MLFLOW_TRACKING_USERNAME"},
		{"a tracking server with a user", `spec: {monitoring: {mlflowTrackingUri: "https://token@mlflow.example.com"}}`,
			"spec.monitoring.mlflowTrackingUri", "use a Secret"},
		{"metrics at the port of TensorBoard", `spec: {monitoring: {metricsPort: 6006, tensorboardEnabled: true}}`, "spec.monitoring.metricsPort", "choose another, or set tensorboardEnabled to false"},
		{"replica 0 gathering the others at the port of TensorBoard", `spec: {networking: {masterPort: 6006}, monitoring: {tensorboardEnabled: true}}`,
			"spec.networking.masterPort", "choose another, or set spec.monitoring.tensorboardEnabled to false"},
		{"an unknown kind of isolation", `spec: {networking: {isolation: Namespace}}`, "spec.networking.isolation", `supported values: "None", "Job"`},
		{"an unknown storage", `spec: {checkpoint: {storage: {type: ftp}}}`, "spec.checkpoint.storage.type", `supported values: "pvc", "s3", "gcs", "azure", "nfs"`},
		{"S3 without bucket", `spec: {checkpoint: {storage: {type: s3}}}`, "spec.checkpoint.storage.s3Bucket", "name the bucket"},
		{"an S3 bucket for a claim", `spec: {checkpoint: {storage: {s3Bucket: ckpt}}}`, "spec.checkpoint.storage.type", "set type to s3 or remove s3Bucket"},
		{"an S3 bucket in capitals", `spec: {checkpoint: {storage: {type: s3, s3Bucket: CKPT}}}`, "spec.checkpoint.storage.s3Bucket", "should match"},
		{"an S3 endpoint without scheme", `spec: {checkpoint: {storage: {type: s3, s3Bucket: ckpt, s3Endpoint: "minio:9000"}}}`, "spec.checkpoint.storage.s3Endpoint", "should match"},
		{"GCS without bucket", `spec: {checkpoint: {storage: {type: gcs}}}`, "spec.checkpoint.storage.gcsBucket", "name the bucket"},
		{"a GCS bucket for S3", `spec: {checkpoint: {storage: {type: s3, s3Bucket: ckpt, gcsBucket: ckpt}}}`, "spec.checkpoint.storage.type", "set type to gcs or remove gcsBucket"},
		{"Azure without account", `spec: {checkpoint: {storage: {type: azure, azureContainer: ckpt}}}`, "spec.checkpoint.storage.azureContainer", "name both"},
		{"an Azure account for a claim", `spec: {checkpoint: {storage: {azureAccount: ckpt}}}`, "spec.checkpoint.storage.type", "set type to azure or remove"},
		{"NFS without path", `spec: {checkpoint: {storage: {type: nfs, nfsServer: nas}}}`, "spec.checkpoint.storage.nfsServer", "name both"},
		{"an NFS path that is relative", `spec: {checkpoint: {storage: {type: nfs, nfsServer: nas, nfsPath: ckpt}}}`, "spec.checkpoint.storage.nfsPath", "should match"},
		{"an NFS server for a claim", `spec: {checkpoint: {storage: {nfsServer: nas}}}`, "spec.checkpoint.storage.type", "set type to nfs or remove"},
		{"a claim for S3", `spec: {checkpoint: {storage: {type: s3, s3Bucket: ckpt, claimName: c}}}`, "spec.checkpoint.storage.type", "set type to pvc or remove claimName"},
		{"a size for a claim that exists", `spec: {checkpoint: {storage: {claimName: c, size: 1Gi}}}`, "spec.checkpoint.storage.claimName", "or remove claimName so that a claim is created"},
		{"a claim without size", `spec: {checkpoint: {storage: {size: 0}}}`, "spec.checkpoint.storage.size", "write for example 10Gi"},
		{"a size in words", `spec: {checkpoint: {storage: {size: big}}}`, "spec.checkpoint.storage.size", "should match"},
		{"a claim that can only be read", `spec: {checkpoint: {storage: {accessModes: [ReadOnlyMany]}}}`, "spec.checkpoint.storage.accessModes[0]", "supported values"},
		{"an unknown retention policy", `spec: {checkpoint: {storage: {retentionPolicy: Keep}}}`, "spec.checkpoint.storage.retentionPolicy", `supported values: "Retain", "Delete"`},
		{"a Secret for a claim", `spec: {checkpoint: {storage: {secretRef: {name: s}}}}`, "spec.checkpoint.storage.secretRef", "remove it, or set type to s3, gcs or azure"},
		{"a Secret without name", `spec: {checkpoint: {storage: {type: s3, s3Bucket: ckpt, secretRef: {}}}}`, "spec.checkpoint.storage.secretRef.name", "Required value"},
		{"a claim name in capitals", `spec: {checkpoint: {storage: {claimName: Data}}}`, "spec.checkpoint.storage.claimName", "should match"},
		{"a storage class with blanks", `spec: {checkpoint: {storage: {storageClassName: fast disk}}}`, "spec.checkpoint.storage.storageClassName", "should match"},
		{"a claim for one pod and two workers", `spec: {checkpoint: {storage: {accessModes: [ReadWriteOncePod]}}}`, "spec.checkpoint.storage.accessModes", "use ReadWriteMany"},
		{"a prefix for NFS", `spec: {checkpoint: {storage: {type: nfs, nfsServer: nas, nfsPath: /x, prefix: a/}}}`, "spec.checkpoint.storage.prefix", "remove it, or set type to s3, gcs or azure"},

		// Scheduling
		{"an empty priority class", `spec: {scheduling: {priority: ""}}`, "spec.scheduling.priority", "should be at least 1 chars long"},
		{"a priority class with blanks", `spec: {scheduling: {priority: High Priority}}`, "spec.scheduling.priority", "should match"},
		{"a queue name with a slash", `spec: {scheduling: {queueName: a/b}}`, "spec.scheduling.queueName", "should match"},
		{"a spot reference in capitals", `spec: {scheduling: {spot: {name: T4}}}`, "spec.scheduling.spot.name", "should match"},
		{"an unknown operator of a toleration", `spec: {scheduling: {tolerations: [{key: gpu, operator: Exist}]}}`, "spec.scheduling.tolerations", "use Exists, or Equal with a value"},
		{"an unknown effect of a toleration", `spec: {scheduling: {tolerations: [{key: gpu, effect: NoSched}]}}`, "spec.scheduling.tolerations", "use NoSchedule, PreferNoSchedule or NoExecute"},
		{"gang in words", `spec: {scheduling: {gang: "yes"}}`, "spec.scheduling.gang", "must be of type boolean"},
		{"a spot reference without name", `spec: {scheduling: {spot: {}}}`, "spec.scheduling.spot.name", "Required value"},
		{"tolerations that are no list", `spec: {scheduling: {tolerations: all}}`, "spec.scheduling.tolerations", "must be of type array"},
		{"a misspelled toleration", `spec: {scheduling: {tolerations: [{key: gpu, op: Exists}]}}`, "spec.scheduling.tolerations[0].op", "unknown field"},
		{"a misspelled affinity", `spec: {scheduling: {affinity: {podAntiAfinity: {}}}}`, "spec.scheduling.affinity.podAntiAfinity", "unknown field"},

		// Monitoring and networking
		{"a metrics port below 1024", `spec: {monitoring: {metricsPort: 80}}`, "spec.monitoring.metricsPort", "should be greater than or equal to 1024"},
		{"a metrics port above 65535", `spec: {monitoring: {metricsPort: 70000}}`, "spec.monitoring.metricsPort", "should be less than or equal to 65535"},
		{"an MLflow address without scheme", `spec: {monitoring: {mlflowTrackingUri: "mlflow:5000"}}`, "spec.monitoring.mlflowTrackingUri", "should match"},
		{"a W&B key without project", `spec: {monitoring: {wandbSecretRef: {name: wandb, key: key}}}`, "spec.monitoring.wandbProject", "name the project, or remove wandbSecretRef"},
		{"a W&B Secret without key", `spec: {monitoring: {wandbProject: p, wandbSecretRef: {name: wandb}}}`, "spec.monitoring.wandbSecretRef.key", "Required value"},
		{"an unknown backend", `spec: {networking: {backend: tcp}}`, "spec.networking.backend", `supported values: "nccl", "gloo", "mpi"`},
		{"nccl without GPUs", `spec: {gpusPerWorker: 0, networking: {backend: nccl}}`, "spec.networking.backend", "use gloo or mpi, or ask for GPUs"},
		{"a master port below 1024", `spec: {networking: {masterPort: 22}}`, "spec.networking.masterPort", "should be greater than or equal to 1024"},
		{"one port for two purposes", `spec: {monitoring: {metricsPort: 29500}}`, "spec.monitoring.metricsPort", "choose another port for one of them"},
		{"an RDMA resource without RDMA", `spec: {networking: {rdmaResource: rdma/hca}}`, "spec.networking.rdmaResource", "set spec.networking.rdmaEnabled to true or remove rdmaResource"},
		{"an RDMA resource without domain", `spec: {networking: {rdmaEnabled: true, rdmaResource: hca}}`, "spec.networking.rdmaResource", "should match"},

		// Policies
		{"restarting always", `spec: {failurePolicy: {restartPolicy: Always}}`, "spec.failurePolicy.restartPolicy", `supported values: "OnFailure", "ExitCode", "Never"`},
		{"a negative number of restarts", `spec: {failurePolicy: {backoffLimit: -1}}`, "spec.failurePolicy.backoffLimit", "should be greater than or equal to 0"},
		{"1001 restarts", `spec: {failurePolicy: {backoffLimit: 1001}}`, "spec.failurePolicy.backoffLimit", "should be less than or equal to 1000"},
		{"a deadline of 0 seconds", `spec: {failurePolicy: {activeDeadlineSeconds: 0}}`, "spec.failurePolicy.activeDeadlineSeconds", "should be greater than or equal to 1"},
		{"success as failure", `spec: {failurePolicy: {nonRetryableExitCodes: [0]}}`, "spec.failurePolicy.nonRetryableExitCodes[0]", "should be greater than or equal to 1"},
		{"exit code 256", `spec: {failurePolicy: {nonRetryableExitCodes: [256]}}`, "spec.failurePolicy.nonRetryableExitCodes[0]", "should be less than or equal to 255"},
		{"an exit code twice", `spec: {failurePolicy: {nonRetryableExitCodes: [64, 64]}}`, "spec.failurePolicy.nonRetryableExitCodes[1]", "Duplicate value"},
		{"an empty success policy", `spec: {successPolicy: {}}`, "spec.successPolicy", "set targetAccuracy, targetMetric or earlyStoppingPatience"},
		{"an accuracy in per cent", `spec: {successPolicy: {targetAccuracy: 95}}`, "spec.successPolicy.targetAccuracy", "should be less than or equal to 1"},
		{"two targets", `spec: {successPolicy: {targetAccuracy: 0.9, targetMetric: {name: loss, value: 1}}}`, "spec.successPolicy.targetMetric", "keep one of the two"},
		{"no patience", `spec: {successPolicy: {earlyStoppingPatience: 0}}`, "spec.successPolicy.earlyStoppingPatience", "should be greater than or equal to 1"},
		{"a target without value", `spec: {successPolicy: {targetMetric: {name: loss}}}`, "spec.successPolicy.targetMetric.value", "Required value"},
		{"a target without metric", `spec: {successPolicy: {targetMetric: {value: 1}}}`, "spec.successPolicy.targetMetric.name", "Required value"},
		{"an unknown direction", `spec: {successPolicy: {targetMetric: {name: loss, value: 1, mode: low}}}`, "spec.successPolicy.targetMetric.mode", `supported values: "max", "min"`},
		{"more workers than elastic allows", `spec: {numWorkers: 9, elastic: {minWorkers: 1, maxWorkers: 8}}`, "spec.numWorkers", "choose a number within these bounds or widen them"},
		{"elastic bounds the wrong way round", `spec: {elastic: {minWorkers: 4, maxWorkers: 2}}`, "spec.elastic.minWorkers", "lower it or raise maxWorkers"},
		{"rescaling in an unknown way", `spec: {elastic: {minWorkers: 1, maxWorkers: 4, rescalePolicy: Live}}`, "spec.elastic.rescalePolicy", `supported values: "InPlace", "Restart"`},
		{"elastic without upper bound", `spec: {elastic: {minWorkers: 1}}`, "spec.elastic.maxWorkers", "Required value"},
		{"elastic down to nothing", `spec: {elastic: {minWorkers: 0, maxWorkers: 2}}`, "spec.elastic.minWorkers", "should be greater than or equal to 1"},
		{"suspend in words", `spec: {suspend: "true"}`, "spec.suspend", "must be of type boolean"},
		{"a negative time to live", `spec: {ttlSecondsAfterFinished: -1}`, "spec.ttlSecondsAfterFinished", "should be greater than or equal to 0"},
		{"an unknown clean-up", `spec: {cleanupPolicy: Everything}`, "spec.cleanupPolicy", `supported values: "None", "Running", "All"`},
	}
	assert.GreaterOrEqual(t, len(tests), 60)
	testRejections(t, trainingJob, tests)
}
