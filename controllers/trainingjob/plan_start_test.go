package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const admitted = "True " + reasons.AdmittedUnqueued

func TestANewJobIsStartedInTwoStages(t *testing.T) {
	tests := map[string]struct {
		job         *builders.TrainingJobBuilder
		first, both []string
	}{
		"with what it needs and no more": {
			job:   builders.TrainingJob("bert"),
			first: []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"},
			both: []string{
				"ServiceAccount bert-training", "Job bert-training, attempt 0",
				"ConfigMap bert-config", "Service bert-headless", "Service bert-master",
			},
		},
		"with a claim of its own, before the pods that mount it": {
			job:   builders.TrainingJob("bert").Checkpoints(),
			first: []string{"ServiceAccount bert-training", "PersistentVolumeClaim bert-checkpoints", "Job bert-training, attempt 0"},
			both: []string{
				"ServiceAccount bert-training", "PersistentVolumeClaim bert-checkpoints", "Job bert-training, attempt 0",
				"ConfigMap bert-config", "Service bert-headless", "Service bert-master",
			},
		},
		"with a claim and ServiceAccount of the user's own": {
			job:   builders.TrainingJob("bert").Claim("shared").Spec(func(s *mlv1.TrainingJobSpec) { s.ServiceAccountName = "team" }),
			first: []string{"Job bert-training, attempt 0"},
			both: []string{
				"Job bert-training, attempt 0", "ConfigMap bert-config", "Service bert-headless", "Service bert-master",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()

			first := outlineOf(plan(see(job, nil)))
			second := outlineOf(plan(see(job, builders.Workers(job).Obj())))

			assert.Equal(t, test.first, first.Apply)
			assert.True(t, first.More, "the rest, and the report, follow at once")
			assert.Equal(t, test.both, second.Apply)
			assert.False(t, second.More)
			assert.Equal(t, mlv1.StateInitializing, second.State)
		})
	}
}

func TestWorkersStart(t *testing.T) {
	job := builders.TrainingJob("bert").Workers(2).Obj()
	workers := builders.Workers(job).Obj()
	pod := func(replica int) *builders.PodBuilder { return builders.Pod(workers, replica) }
	all := []string{
		"ServiceAccount bert-training", "Job bert-training, attempt 0",
		"ConfigMap bert-config", "Service bert-headless", "Service bert-master",
	}
	waiting := func(reason string, active int32) outline {
		return outline{
			Apply: all, State: mlv1.StateInitializing, Reason: reason, Workers: mlv1.WorkersStatus{Total: 2, Active: active},
			Conditions: conditions{"Admitted": admitted, "Initialized": "False " + reason, "Running": "False " + reason},
		}
	}
	with := func(o outline, change func(*outline)) outline {
		change(&o)
		return o
	}
	tests := map[string]struct {
		observed observed
		want     outline
		message  string // of the condition Initialized
	}{
		"no pod exists yet: wait, and look whether one could be created": {
			observed: see(job, workers).after(4 * time.Second),
			want:     with(waiting(reasons.WorkersStarting, 0), func(o *outline) { o.Again = 6 * time.Second }),
			message:  "0 of 2 workers run",
		},
		"no pod could be created": {
			observed: see(job, workers).after(11 * time.Second),
			want:     with(waiting(reasons.PodCreationFailed, 0), func(o *outline) { o.Again = podCreation }),
			message:  "2 of 2 pods could not be created: see the events of the Job, kubectl describe job bert-training -n default",
		},
		"the quota allows one of two pods": {
			observed: refusedBy(see(job, workers, pod(0).Running().Obj()).after(11*time.Second),
				`Error creating: pods "bert-training-1-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1`),
			want: with(waiting(reasons.ResourceQuotaExceeded, 1), func(o *outline) { o.Scrape = "http://10.0.0.10:8080/metrics" }),
			message: `1 of 2 pods could not be created: pods "bert-training-1-x" is forbidden: exceeded quota: small, ` +
				`requested: pods=1, used: pods=1, limited: pods=1; free or raise the quota, or request less`,
		},
		"the namespace does not allow such pods": {
			observed: refusedBy(see(job, workers).after(11*time.Second), `Error creating: pods "x" is forbidden: violates PodSecurity "restricted:latest": hostPort`),
			want:     waiting(reasons.PodSecurityViolation, 0),
			message: `2 of 2 pods could not be created: pods "x" is forbidden: violates PodSecurity "restricted:latest": hostPort` +
				`; correct spec.securityContext, or use another namespace`,
		},
		"a webhook refuses the pods": {
			observed: refusedBy(see(job, workers).after(11*time.Second), `Error creating: admission webhook "w" denied the request`),
			want:     waiting(reasons.PodCreationFailed, 0),
			message:  `2 of 2 pods could not be created: admission webhook "w" denied the request`,
		},
		"one of two runs and its metrics are read": {
			observed: see(job, workers, pod(0).Running().Obj(), pod(1).Obj()),
			want:     with(waiting(reasons.WorkersStarting, 1), func(o *outline) { o.Scrape = "http://10.0.0.10:8080/metrics" }),
			message:  "1 of 2 workers run",
		},
		"a pod fits on no node": {
			observed: see(job, workers, pod(0).Obj(), pod(1).Unschedulable("0/3 nodes are available").Obj()),
			want:     waiting(reasons.Unschedulable, 0),
			message:  "pod bert-training-1-a0 fits on no node: 0/3 nodes are available; lower spec.resources, widen spec.scheduling, or add nodes",
		},
		"an image cannot be pulled": {
			observed: see(job, workers, pod(0).Waiting("ImagePullBackOff", "no such tag").Obj()),
			want:     waiting(reasons.ImagePullFailed, 0),
			message:  "pod bert-training-0-a0 cannot pull image trainer:1: no such tag; correct spec.image, or name a Secret for its registry in spec.imagePullSecrets",
		},
		"a container lacks a Secret": {
			observed: see(job, workers, pod(0).Waiting("CreateContainerConfigError", "secret wandb not found").Obj()),
			want:     waiting(reasons.ContainerConfigError, 0),
			message:  "pod bert-training-0-a0 cannot start its container: secret wandb not found; once what it lacks exists in namespace default it starts by itself",
		},
		"a container is being created": {
			observed: see(job, workers, pod(0).Waiting("ContainerCreating", "").Obj(), pod(1).Obj()),
			want:     waiting(reasons.WorkersStarting, 0),
			message:  "0 of 2 workers run",
		},
		"pods without replica-id get it": {
			observed: see(job, workers, pod(0).Unlabelled().Obj(), pod(1).Unlabelled().Obj()),
			want: with(waiting(reasons.WorkersStarting, 0), func(o *outline) {
				o.Label = []string{"bert-training-0-a0 replica-id=0", "bert-training-1-a0 replica-id=1"}
			}),
			message: "0 of 2 workers run",
		},
		"all run": {
			observed: see(job, workers, pod(0).Running().Obj(), pod(1).Running().Obj()),
			want: outline{
				Apply: all, Scrape: "http://10.0.0.10:8080/metrics",
				State: mlv1.StateRunning, Reason: reasons.WorkersRunning, Workers: mlv1.WorkersStatus{Total: 2, Active: 2},
				Conditions: conditions{"Admitted": admitted, "Initialized": "True WorkersRunning", "Running": "True WorkersRunning"},
			},
			message: "all 2 workers run",
		},
		"one runs and the other has already succeeded": {
			observed: see(job, workers, pod(0).Succeeded("").Obj(), pod(1).Running().Obj()),
			want: outline{
				Apply: all, State: mlv1.StateRunning, Reason: reasons.WorkersRunning,
				Workers:    mlv1.WorkersStatus{Total: 2, Active: 1, Succeeded: 1},
				Conditions: conditions{"Admitted": admitted, "Initialized": "True WorkersRunning", "Running": "True WorkersRunning"},
			},
			message: "all 2 workers run",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := plan(test.observed)

			lookingLike(t, test.want, got)
			assert.Equal(t, test.message, waitingMessage(&got.status))
		})
	}
}

func TestObstaclesKeepAJobPending(t *testing.T) {
	s3 := func(c *mlv1.Checkpoint) { c.Storage = mlv1.CheckpointStorage{Type: mlv1.StorageS3, S3Bucket: "b"} }
	checkpoint := func(changes ...func(*mlv1.Checkpoint)) *builders.TrainingJobBuilder {
		return builders.TrainingJob("bert").Checkpoints().Spec(func(spec *mlv1.TrainingJobSpec) {
			for _, change := range changes {
				change(spec.Checkpoint)
			}
		})
	}
	off := func(c *mlv1.Checkpoint) { c.Enabled = ptr.To(false) }
	from := func(source string) func(*mlv1.Checkpoint) { return func(c *mlv1.Checkpoint) { c.ResumeFrom = source } }

	tests := map[string]struct {
		job     *builders.TrainingJobBuilder
		missing string
		reason  string
		message string
	}{
		"a framework whose image must be named": {
			job:    builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Framework = mlv1.FrameworkJAX }),
			reason: reasons.FrameworkNotSupported,
			message: "spec.image: is missing: the operator's training worker has no JAX: name an image with your program, " +
				"for example one made from python:3.12 with pip install jax",
		},
		"a framework of a later version": {
			job:    builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Framework = "caffe" }),
			reason: reasons.FrameworkNotSupported,
			message: "spec.framework: this version of the operator does not run caffe: " +
				"use pytorch, tensorflow, jax, ray, mpi or xgboost",
		},
		"a path in a volume that the job does not have": {
			job: checkpoint(off, from("latest")), reason: reasons.StorageNotSupported,
			message: "spec.checkpoint.resumeFrom: needs the job's own storage, but spec.checkpoint.enabled is false: enable it or write a URI such as pvc://claim/path",
		},
		"a claim that does not exist": {
			job: builders.TrainingJob("bert").Claim("shared"), missing: "shared", reason: reasons.ClaimNotFound,
			message: "there is no PersistentVolumeClaim shared in namespace default: create it, or correct spec.checkpoint",
		},
		"nothing: checkpoints that are turned off":                 {job: checkpoint(s3, off)},
		"nothing: checkpoints in an object store":                  {job: checkpoint(s3)},
		"nothing: resuming from an object store":                   {job: checkpoint(from("gs://bucket/run"))},
		"nothing: resuming from a claim without saving":            {job: checkpoint(off, from("pvc://old/run"))},
		"nothing: resuming from the job's own volume":              {job: checkpoint(from("/run/checkpoint-epoch-1"))},
		"nothing: resuming from the newest checkpoint of its name": {job: checkpoint(from("latest"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := see(test.job.Obj(), nil)
			o.missingClaim = test.missing

			got := plan(o)

			if test.reason == "" {
				assert.True(t, got.more, "the job is started")
				return
			}
			want := outline{
				State: mlv1.StatePending, Reason: test.reason, Conditions: conditions{"Initialized": "False " + test.reason},
			}
			if test.reason != reasons.FrameworkNotSupported {
				want.Conditions["CheckpointReady"] = "False " + test.reason
				want.Again = 15 * time.Second
			}
			lookingLike(t, want, got)
			assert.Equal(t, test.message, waitingMessage(&got.status))
		})
	}
}

func TestAJobThatWaitedForItsClaimStartsOnceItIsThere(t *testing.T) {
	o := see(builders.TrainingJob("bert").Claim("shared").Obj(), nil)
	o.missingClaim = "shared"
	job := o.job.DeepCopy()
	job.Status = plan(o).status

	first := plan(see(job, nil))
	second := outlineOf(plan(see(job, builders.Workers(job).Obj())))

	assert.True(t, first.more)
	assert.NotContains(t, second.Conditions, "CheckpointReady", "whether the claim can be used is not known yet")
	assert.Equal(t, mlv1.StateInitializing, second.State)
}

func TestNoAttemptStartsWhilePodsOfAnEarlierOneRun(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	old := func() *builders.PodBuilder { return builders.Pod(builders.Workers(job).Obj(), 0) }
	started := outline{Apply: []string{"ServiceAccount bert-training", "Job bert-training, attempt 0"}, More: true}
	tests := map[string]struct {
		pod  *corev1.Pod
		want outline
	}{
		"a pod whose Job has just been deleted, until the garbage collector deletes it too": {
			pod: old().Running().Obj(), want: outline{Again: 75 * time.Second},
		},
		"a pod that ends, for its grace period and a little": {
			pod: old().Deleting(30 * time.Second).Obj(), want: outline{Again: 45 * time.Second},
		},
		"a pod that should be gone long ago is given up, for its node no longer answers": {
			pod: old().Deleting(-16 * time.Second).Obj(), want: started,
		},
		"a pod that has failed is not waited for":    {pod: old().Deleting(time.Minute).Failed(1).Obj(), want: started},
		"a pod that has succeeded is not waited for": {pod: old().Deleting(time.Minute).Succeeded("").Obj(), want: started},
		"a pod that was orphaned is deleted": {
			pod:  old().Running().Orphaned().Obj(),
			want: outline{Delete: []string{"Pod bert-training-0-a0"}, Again: 75 * time.Second},
		},
		"an orphan that is being deleted is not deleted again": {
			pod:  old().Running().Orphaned().Deleting(time.Minute).Obj(),
			want: outline{Again: 75 * time.Second},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.Workers.Total = 1
			if test.want.More {
				test.want.State, test.want.Conditions = mlv1.StatePending, conditions{"Admitted": admitted}
			} else {
				test.want.State, test.want.Reason = mlv1.StateInitializing, reasons.WorkersStarting
				test.want.Conditions = conditions{
					"Admitted": admitted, "Initialized": "False WorkersStarting", "Running": "False WorkersStarting",
				}
			}

			lookingLike(t, test.want, plan(see(job, nil, test.pod)))
		})
	}
}

func TestPodsOfAnEarlierJobOfThisNameDoNotCount(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	workers := builders.Workers(job).Attempt(1).Obj()
	earlier := builders.Workers(job).Attempt(0).Obj()
	job.Status.RestartCount = 1

	d := plan(see(job, workers, builders.Pod(earlier, 0).Failed(1).Obj(), builders.Pod(workers, 0).Obj()))

	assert.Equal(t, mlv1.StateInitializing, d.status.State)
	assert.Equal(t, int32(1), d.status.RestartCount, "an old failure is not counted again")
}

func TestAJobMadeByAnotherVersionWithoutAnAttemptIsItsFirst(t *testing.T) {
	assert.Zero(t, build.AttemptOf(&batchv1.Job{}))
}

// refusedBy is what is observed when the Job controller said why it does not create pods.
func refusedBy(o observed, words string) observed {
	o.creationRefused = words
	return o
}
