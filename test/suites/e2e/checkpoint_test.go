//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"net"
	"path"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

const (
	bucket     = "models"
	secretName = "s3-credentials"
	// toldWithin is how soon what is wrong with the storage must be in a condition.
	toldWithin = time.Minute
)

// s3Server starts an S3 server that the pods of a node on this machine can reach.
func s3Server(t *testing.T) *stores.S3 {
	t.Helper()
	var nodes corev1.NodeList
	require.NoError(t, cluster.List(t.Context(), &nodes))
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			listener, err := net.Listen("tcp", net.JoinHostPort(address.Address, "0"))
			if address.Type == corev1.NodeInternalIP && err == nil {
				require.NoError(t, listener.Close())
				return stores.NewS3(t, net.JoinHostPort(address.Address, "0"))
			}
		}
	}
	t.Skip("no node of the cluster is this machine, so that its pods could not reach an S3 server of the test")
	return nil
}

// in keeps the checkpoints of the job in a bucket of an S3 server.
func (b *jobBuilder) in(server *stores.S3) *jobBuilder {
	b.job.Spec.Checkpoint.Storage = mlv1.CheckpointStorage{
		Type: mlv1.StorageS3, S3Bucket: bucket, S3Region: "us-east-1", S3Endpoint: server.Endpoint, Prefix: "e2e",
		SecretRef: &mlv1.SecretReference{Name: secretName},
	}
	return b
}

func (b *jobBuilder) epochs(count int32) *jobBuilder {
	b.job.Spec.Hyperparameters.Epochs = ptr.To(count)
	return b
}

func credentials(t *testing.T, ns string, server *stores.S3) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: secretName}, StringData: server.Secret()}
	require.NoError(t, cluster.Create(t.Context(), secret))
}

// storedCheckpoints are the names of a job's checkpoints in the bucket.
func storedCheckpoints(server *stores.S3, job *mlv1.TrainingJob) []string {
	area := path.Join("e2e", job.Namespace, job.Name, string(job.UID), "checkpoints")
	var names []string
	for _, key := range server.Keys(bucket, area) {
		if strings.HasSuffix(key, "/manifest.json") {
			names = append(names, path.Base(path.Dir(key)))
		}
	}
	return names
}

// happened waits for an event about a job.
func happened(t *testing.T, job *mlv1.TrainingJob, reason, words string) {
	t.Helper()
	eventually(t, "there is an event "+reason, func(ctx context.Context) (bool, error) {
		events, err := cluster.typed.CoreV1().Events(job.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + job.Name + ",reason=" + reason,
		})
		if err != nil {
			return false, err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, words) {
				return true, nil
			}
		}
		return false, nil
	})
}

func checkpointReady(status metav1.ConditionStatus, reason string) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		ready := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionCheckpointReady)
		return ready != nil && ready.Status == status && ready.Reason == reason
	}
}

// resumesAfterAKill kills a worker of the job and checks that the next attempt starts from what was in the storage.
func resumesAfterAKill(t *testing.T, job *mlv1.TrainingJob) *mlv1.TrainingJob {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), job))
	before := reaches(t, job, "there is a checkpoint of epoch 2", afterCheckpoint(2))
	first := child(t, job, &batchv1.Job{}, "-training")

	victim := workers(t, job)["1"]
	execute(t, &victim, "kill -9 $(cat /tmp/worker.pid)")

	failed := reaches(t, job, "it restarts", func(job *mlv1.TrainingJob) bool { return job.Status.RestartCount == 1 })
	assert.Contains(t, failed.Status.FailureReason, "worker 1 ")
	assert.Contains(t, failed.Status.FailureReason, "signal 9")
	done := completes(t, job)
	assert.Equal(t, int32(1), done.Status.RestartCount)
	assert.Zero(t, done.Status.DisruptionCount)
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
	assert.NotEqual(t, first.UID, child(t, job, &batchv1.Job{}, "-training").UID, "the Job was replaced")
	assert.GreaterOrEqual(t, restoredStep(t, job), before.Status.Checkpoint.Step, "nothing before the checkpoint is trained again")
	assert.NotEmpty(t, done.Status.Checkpoint.RestoredFrom)
	assert.Equal(t, int32(1), done.Status.Checkpoint.RestoredAttempt)
	assert.Equal(t, int32(8), done.Status.Checkpoint.Epoch)
	assert.True(t, checkpointReady(metav1.ConditionTrue, reasons.StorageReady)(done))
	happened(t, job, "CheckpointRestored", done.Status.Checkpoint.RestoredFrom)
	return done
}

func TestAKilledWorkerResumesFromAClaim(t *testing.T) {
	t.Parallel()
	done := resumesAfterAKill(t, digits(namespace(t), "killed-pvc").pace(150e6).killable().obj())
	assert.Equal(t, "killed-pvc-checkpoints", done.Status.Checkpoint.ClaimName)
}

func TestAKilledWorkerResumesFromS3(t *testing.T) {
	t.Parallel()
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	job := digits(ns, "killed-s3").pace(150e6).killable().in(server).obj()

	done := resumesAfterAKill(t, job)

	assert.True(t, strings.HasPrefix(done.Status.Checkpoint.Path, "s3://"+bucket+"/e2e/"), done.Status.Checkpoint.Path)
	assert.True(t, strings.HasPrefix(done.Status.Checkpoint.RestoredFrom, "s3://"+bucket+"/e2e/"), done.Status.Checkpoint.RestoredFrom)
	assert.Contains(t, storedCheckpoints(server, done), "checkpoint-epoch-8", "it was stored before the job was Completed")
}

func TestRetentionKeepsExactlyTheNewestCheckpoints(t *testing.T) {
	t.Parallel()
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	job := digits(ns, "retention").alone().pace(50e6).in(server).obj()
	job.Spec.Checkpoint.Retention = 2
	require.NoError(t, cluster.Create(t.Context(), job))

	done := completes(t, job)

	assert.Equal(t, int32(2), done.Status.Checkpoint.Kept)
	assert.ElementsMatch(t, []string{"checkpoint-epoch-7", "checkpoint-epoch-8"}, storedCheckpoints(server, done))
}

// nextCheckpoints waits in a worker until it has seen five checkpoints, and prints the newest.
const nextCheckpoints = `seen=; i=0; n=0; while [ $n -lt 5 ] && [ $i -lt 600 ]; do
	newest=$(basename "$(ls -td $CHECKPOINT_DIR/checkpoint-* 2>/dev/null | head -n 1)")
	[ "$newest" = "$seen" ] || { seen=$newest; n=$((n+1)); }
	i=$((i+1)); sleep 0.05
done; echo $seen`

// A worker that dies while it and its agent delete old checkpoints leaves none that looks damaged.
func TestAForceDeletedWorkerLeavesNoDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	const epochs = 100
	job := digits(namespace(t), "forced").alone().pace(50e6).epochs(epochs).obj()
	job.Spec.Hyperparameters.BatchSize = ptr.To[int32](2048) // an epoch is one step, and saves a checkpoint
	job.Spec.Checkpoint.Retention = 1
	require.NoError(t, cluster.Create(t.Context(), job))
	isWhole := func(job *mlv1.TrainingJob) {
		ready := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionCheckpointReady)
		require.False(t, ready != nil && ready.Reason == "CorruptCheckpoint", "%+v", ready)
	}

	var epoch int64
	for kill := range int32(3) {
		reaches(t, job, "it runs again", func(job *mlv1.TrainingJob) bool {
			isWhole(job)
			return job.Status.State == mlv1.StateRunning && job.Status.RestartCount == kill
		})
		victim := workers(t, job)["0"]
		newest := execute(t, &victim, nextCheckpoints)
		var err error
		// A worker that is told to end saves one by its step, which is an epoch here.
		epoch, err = strconv.ParseInt(newest[strings.LastIndex(newest, "-")+1:], 10, 64)
		require.NoError(t, err)
		require.Less(t, epoch, int64(epochs), "it trains still")
		require.NoError(t, cluster.Delete(t.Context(), &victim, client.GracePeriodSeconds(0)))
	}

	done := completes(t, job)
	isWhole(done)
	assert.Equal(t, int32(3), done.Status.RestartCount)
	assert.Equal(t, int32(epochs), done.Status.Checkpoint.Epoch)
	assert.GreaterOrEqual(t, restoredStep(t, job), epoch, "nothing before the checkpoint is trained again")
	assert.Empty(t, done.Status.Checkpoint.Skipped)
	events, err := cluster.typed.EventsV1().Events(job.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, event := range events.Items {
		assert.NotEqual(t, reasons.EventCheckpointSkipped, event.Reason, event.Note)
		assert.NotContains(t, event.Note, "CorruptCheckpoint")
	}
}

func TestACorruptNewestCheckpointOnAClaimIsSkipped(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "corrupt-pvc").alone().pace(150e6).killable().obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "there are several checkpoints", afterCheckpoint(3))

	victim := workers(t, job)["0"]
	corrupt := execute(t, &victim, `newest=$(ls -td $CHECKPOINT_DIR/checkpoint-* | head -n 1); echo more >>$newest/state.pt; `+
		`kill -9 $(cat /tmp/worker.pid); basename $newest`)

	skipsTheCorruptOne(t, job, corrupt)
}

func TestACorruptNewestCheckpointInS3IsSkipped(t *testing.T) {
	t.Parallel()
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	job := digits(ns, "corrupt-s3").alone().pace(150e6).in(server).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "there are several checkpoints", afterCheckpoint(3))
	setSuspend(t, job, true)
	suspended := reaches(t, job, "it is Suspended", inState(mlv1.StateSuspended))
	require.True(t, checkpointReady(metav1.ConditionTrue, reasons.StorageReady)(suspended), "the last checkpoint was stored")
	newest := path.Base(suspended.Status.Checkpoint.Path)
	require.Contains(t, storedCheckpoints(server, suspended), newest)

	area := path.Join("e2e", job.Namespace, job.Name, string(job.UID))
	var manifest struct {
		Files []struct{ SHA256 string } `json:"files"`
	}
	require.NoError(t, json.Unmarshal(server.Get(bucket, path.Join(area, "checkpoints", newest, "manifest.json")), &manifest))
	require.NotEmpty(t, manifest.Files)
	blob := path.Join(area, "blobs", "sha256", manifest.Files[0].SHA256)
	content := server.Get(bucket, blob)
	content[len(content)/2] ^= 1
	server.Put(bucket, blob, content)
	setSuspend(t, job, false)

	skipsTheCorruptOne(t, job, newest)
}

// skipsTheCorruptOne waits until the job has gone on from an older checkpoint than the one with the name.
func skipsTheCorruptOne(t *testing.T, job *mlv1.TrainingJob, name string) {
	t.Helper()
	done := completes(t, job)
	happened(t, job, "CheckpointSkipped", name)
	assert.NotEqual(t, name, path.Base(done.Status.Checkpoint.RestoredFrom))
	assert.NotEmpty(t, done.Status.Checkpoint.RestoredFrom, "it did not begin at the first epoch")
	assert.Positive(t, restoredStep(t, job))
	var skipped []string
	for _, one := range done.Status.Checkpoint.Skipped {
		skipped = append(skipped, strings.TrimPrefix(path.Base(one.Path), ".corrupt-"))
	}
	assert.Contains(t, skipped, name)
	assert.Equal(t, int32(8), done.Status.CurrentEpoch)
}

func TestACheckpointIsTakenOnRequest(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "request").alone().pace(150e6).epochs(100).obj()
	job.Spec.Checkpoint.Frequency = 1000
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 1
	})
	paths := map[string]bool{}

	for _, value := range []string{"first", "second"} {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+mlv1.AnnotationCheckpointNow+`":"`+value+`"}}}`))
		require.NoError(t, cluster.Patch(t.Context(), job.DeepCopy(), patch))
		done := reaches(t, job, "request "+value+" is done", func(job *mlv1.TrainingJob) bool {
			c := job.Status.Checkpoint
			return c != nil && c.Request != nil && c.Request.ID == value && c.Request.State == mlv1.CheckpointRequestDone
		})
		assert.Equal(t, mlv1.StateRunning, done.Status.State)
		paths[done.Status.Checkpoint.Request.Path] = true
		happened(t, job, "CheckpointRequestDone", value)
		master := workers(t, job)["0"]
		assert.Contains(t, execute(t, &master, "ls /checkpoints"+done.Status.Checkpoint.Request.Path), "manifest.json")
	}

	assert.Len(t, paths, 2, "each value is a request of its own")
}

func TestAJobResumesFromAnotherJob(t *testing.T) {
	t.Parallel()
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	next := digits(ns, "next").alone().epochs(4).obj()
	next.Spec.Checkpoint.ResumeFrom = "first"
	require.NoError(t, cluster.Create(t.Context(), next))
	reaches(t, next, "it waits for the other job", func(job *mlv1.TrainingJob) bool {
		return job.Status.Reason == reasons.ResumeSourceNotFound
	})
	first := digits(ns, "first").alone().epochs(2).in(server).obj()
	require.NoError(t, cluster.Create(t.Context(), first))

	done := completes(t, next)

	assert.Contains(t, done.Status.Checkpoint.RestoredFrom, string(first.UID))
	assert.Positive(t, restoredStep(t, next))
	assert.Equal(t, int32(4), done.Status.CurrentEpoch)
	assert.Equal(t, "next-checkpoints", done.Status.Checkpoint.ClaimName, "its own checkpoints are on its own claim")
}

func TestAMissingSecretIsToldAndHeals(t *testing.T) {
	t.Parallel()
	server, ns := s3Server(t), namespace(t)
	server.MakeBucket(bucket)
	storageHeals(t, digits(ns, "secret").alone().in(server), "CredentialsMissing", func() { credentials(t, ns, server) })
}

func TestAMissingBucketIsToldAndHeals(t *testing.T) {
	t.Parallel()
	server, ns := s3Server(t), namespace(t)
	credentials(t, ns, server)
	storageHeals(t, digits(ns, "bucket").alone().in(server), "BucketNotFound", func() { server.MakeBucket(bucket) })
}

// storageHeals checks that a problem of the storage is told within a minute while the training goes on, and that
// checkpoints reach the storage once it is fixed.
func storageHeals(t *testing.T, b *jobBuilder, reason string, fix func()) {
	t.Helper()
	job := b.pace(300e6).epochs(200).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	running := reaches(t, job, "it trains", inState(mlv1.StateRunning))
	is := reaches(t, job, "the problem is told", checkpointReady(metav1.ConditionFalse, reason))
	problem := meta.FindStatusCondition(is.Status.Conditions, reasons.ConditionCheckpointReady)
	assert.WithinDuration(t, running.Status.StartTime.Time, problem.LastTransitionTime.Time, toldWithin)
	happened(t, job, "CheckpointProblem", reason)

	fix()

	healed := reaches(t, job, "checkpoints are stored", func(job *mlv1.TrainingJob) bool {
		return checkpointReady(metav1.ConditionTrue, reasons.StorageReady)(job) && job.Status.Checkpoint != nil && job.Status.Checkpoint.Path != ""
	})
	assert.Zero(t, healed.Status.RestartCount, "the training went on")
}
