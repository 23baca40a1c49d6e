//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

const recoveryPage = "docs/guide/disaster-recovery.md"

// A cluster is lost while jobs of each kind and state are in it. Another one gets the objects, one namespace by the commands of the guide and one as
// Velero restores it, the database, and the object store that was outside of both.
func TestEverythingGoesOnInAnotherCluster(t *testing.T) {
	if os.Getenv("E2E_DRILL") == "" {
		t.Skip("it destroys the node: make dr-e2e runs it")
	}
	store, folder := s3Server(t), t.TempDir()
	store.MakeBucket(bucket)
	database, queue := postgres.Start(t), redis.Start(t)
	keepJobsIn(t, database, queue)
	restartJobService(t)

	platform := pooledJobsIn(t, namespace(t))
	byKubectl, byVelero := platform.namespace, namespace(t)
	d := &drill{t: t, store: store}
	d.begin(byKubectl)
	d.beginOthers(byKubectl)
	d.begin(byVelero)
	ended := platform.submitPods(workerImage(t), map[string]any{"cpu": "50m", "memory": "256Mi"})
	platform.ends(ended, "dead_letter")
	waiting := platform.submitPods(workerImage(t), map[string]any{"gpu": 64})
	platform.aijob(waiting)

	commands := commandsOf(t, recoveryPage)
	dump := strings.Split(commands["The database of the job service"][0], "\n")
	run(t, folder, dump[0], "DATABASE_URL="+database.URL)
	run(t, folder, commands["With kubectl"][0])
	velero := backUpAsVelero(t, byVelero)
	for resource := range velero {
		assert.NotContains(t, []string{"pods", "jobs", "services"}, resource.Resource, "the operator makes them again")
	}
	d.goOn(byKubectl, byVelero)

	loseCluster(t, store)

	other := postgres.Start(t)
	run(t, folder, dump[1], "NEW_DATABASE_URL="+other.URL)
	for _, name := range []string{byKubectl, byVelero} {
		require.NoError(t, cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}))
	}
	credentials(t, byKubectl, store)
	run(t, folder, commands["With kubectl"][1])
	restoreAsVelero(t, velero, "trainingjobs", "aijobs")
	keepJobsIn(t, other, redis.Start(t))
	script(t, "hack/deploy.sh", "apply")

	d.continues(byKubectl)
	d.continues(byVelero)
	d.continueOthers(byKubectl)
	platform = pooledJobsIn(t, byKubectl)
	assert.NotEmpty(t, platform.ends(ended, "dead_letter")["error"], "the history is there")
	status, answer := platform.ask(t.Context(), http.MethodDelete, "/jobs/"+waiting, nil)
	require.Equal(t, http.StatusOK, status, "%v", answer)
	platform.ends(waiting, "cancelled")
	awaitAIJob(t, platform.aijob(waiting), aiplatformv1alpha1.AIJobCancelled)
}

// drill is what is known of the jobs of the lost cluster.
type drill struct {
	t     *testing.T
	store *stores.S3
	// before are the jobs as they were last seen there.
	before map[types.NamespacedName]*mlv1.TrainingJob
	aijobs map[types.NamespacedName]*aiplatformv1alpha1.AIJob
}

func (d *drill) saw(job *mlv1.TrainingJob) {
	if d.before == nil {
		d.before = map[types.NamespacedName]*mlv1.TrainingJob{}
	}
	d.before[client.ObjectKeyFromObject(job)] = job
}

// job as it was last seen in the lost cluster.
func (d *drill) job(ns, name string) *mlv1.TrainingJob {
	d.t.Helper()
	job := d.before[types.NamespacedName{Namespace: ns, Name: name}]
	require.NotNil(d.t, job, "%s/%s", ns, name)
	return job
}

// begin has a job that trains, one that is suspended and one that has ended.
func (d *drill) begin(ns string) {
	d.t.Helper()
	credentials(d.t, ns, d.store)
	trains := digits(ns, "trains").alone().in(d.store).pace(250e6).obj()
	suspended := digits(ns, "suspended").alone().in(d.store).pace(250e6).obj()
	ended := digits(ns, "ended").alone().in(d.store).epochs(1).obj()
	for _, job := range []*mlv1.TrainingJob{ended, suspended, trains} {
		require.NoError(d.t, cluster.Create(d.t.Context(), job))
	}
	reaches(d.t, suspended, "there is a checkpoint", afterCheckpoint(1))
	setSuspend(d.t, suspended, true)
	d.saw(completes(d.t, ended))
	d.saw(reaches(d.t, suspended, "it is Suspended", inState(mlv1.StateSuspended)))
	d.saw(reaches(d.t, trains, "there is a checkpoint", afterCheckpoint(1)))
}

// beginOthers has a queue with a job that waits, an AIJob that runs and one that has ended.
func (d *drill) beginOthers(ns string) {
	d.t.Helper()
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: "drill"}}
	queue.Spec.MaxConcurrency = 4
	require.NoError(d.t, cluster.Create(d.t.Context(), queue))
	d.t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(d.t.Context()), queue) })
	waits := digits(ns, "waits").in(d.store).gpus(64).obj()
	waits.Spec.Scheduling = &mlv1.Scheduling{QueueName: queue.Name}
	require.NoError(d.t, cluster.Create(d.t.Context(), waits))
	d.saw(reaches(d.t, waits, "it waits", pendingFor(reasons.InsufficientCapacity)))

	d.aijobs = map[types.NamespacedName]*aiplatformv1alpha1.AIJob{}
	for name, program := range map[string]string{
		"runs": "import signal; signal.pause()",
		"done": `open("/dev/termination-log", "w").write('{"answer": "42"}')`,
	} {
		job := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: aiplatformv1alpha1.AIJobSpec{
			JobType: aiplatformv1alpha1.JobSimulation, Image: workerImage(d.t), Command: []string{"/usr/bin/python3", "-c", program}, QueueName: queue.Name,
		}}
		require.NoError(d.t, cluster.Create(d.t.Context(), job))
		d.aijobs[client.ObjectKeyFromObject(job)] = job
	}
	awaitAIJob(d.t, d.aijobs[types.NamespacedName{Namespace: ns, Name: "runs"}], aiplatformv1alpha1.AIJobRunning)
	awaitAIJob(d.t, d.aijobs[types.NamespacedName{Namespace: ns, Name: "done"}], aiplatformv1alpha1.AIJobSucceeded)
}

func pendingFor(reason string) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StatePending && job.Status.Reason == reason
	}
}

// goOn waits until the trainings have a checkpoint that the backup does not know.
func (d *drill) goOn(namespaces ...string) {
	d.t.Helper()
	for _, ns := range namespaces {
		was := d.job(ns, "trains")
		d.saw(reaches(d.t, was.DeepCopy(), "there is a newer checkpoint", afterCheckpoint(was.Status.Checkpoint.Epoch+1)))
	}
}

// continues checks the state of a namespace in the other cluster.
func (d *drill) continues(ns string) {
	d.t.Helper()
	was := d.job(ns, "trains")
	trains := reaches(d.t, was.DeepCopy(), "it trains again", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.Checkpoint != nil && job.Status.Checkpoint.RestoredFrom != ""
	})
	assert.NotEqual(d.t, was.UID, trains.UID)
	assert.Equal(d.t, was.UID, trains.Status.Restored.UID)
	told := meta.FindStatusCondition(trains.Status.Conditions, reasons.ConditionRestored)
	if assert.NotNil(d.t, told) {
		assert.Contains(d.t, told.Message, string(was.UID))
	}
	happened(d.t, trains, reasons.RestoredFromBackup, string(was.UID))
	happened(d.t, trains, "Restarting", "restored from a backup")
	assert.Contains(d.t, trains.Status.Checkpoint.RestoredFrom, "/"+string(was.UID)+"/")
	done := completes(d.t, trains)
	assert.GreaterOrEqual(d.t, restoredStep(d.t, done), was.Status.Checkpoint.Step, "also what the backup did not know is not trained again")
	assert.Equal(d.t, int32(1), done.Status.RestartCount)
	assert.Equal(d.t, int32(1), done.Status.DisruptionCount)
	assert.Equal(d.t, int32(8), done.Status.CurrentEpoch)
	assert.Contains(d.t, storedCheckpoints(d.store, done), "checkpoint-epoch-8", "its own lie under its own UID")

	ended := d.job(ns, "ended")
	now := reaches(d.t, ended.DeepCopy(), "the operator has seen it", func(job *mlv1.TrainingJob) bool { return job.Status.Restored != nil })
	assert.Equal(d.t, mlv1.StateCompleted, now.Status.State)
	assert.True(d.t, ended.Status.CompletionTime.Equal(now.Status.CompletionTime))
	assert.Equal(d.t, ended.Status.StartCount, now.Status.StartCount, "it does not run again")

	suspended := reaches(d.t, d.job(ns, "suspended").DeepCopy(), "the operator has seen it", func(job *mlv1.TrainingJob) bool { return job.Status.Restored != nil })
	assert.Equal(d.t, mlv1.StateSuspended, suspended.Status.State)
	setSuspend(d.t, suspended, false)
	resumed := reaches(d.t, suspended, "it trains", func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.Checkpoint != nil && job.Status.Checkpoint.RestoredFrom != ""
	})
	done = completes(d.t, resumed)
	assert.GreaterOrEqual(d.t, restoredStep(d.t, done), d.job(ns, "suspended").Status.Checkpoint.Step)
	assert.Zero(d.t, done.Status.RestartCount)
}

func (d *drill) continueOthers(ns string) {
	d.t.Helper()
	var queue aiplatformv1alpha1.AIJobQueue
	require.NoError(d.t, cluster.Get(d.t.Context(), client.ObjectKey{Name: "drill"}, &queue))
	waits := reaches(d.t, d.job(ns, "waits").DeepCopy(), "it waits", func(job *mlv1.TrainingJob) bool {
		return job.Status.Restored != nil && pendingFor(reasons.InsufficientCapacity)(job)
	})
	assert.Zero(d.t, waits.Status.StartCount)

	runs, done := d.aijobs[types.NamespacedName{Namespace: ns, Name: "runs"}], d.aijobs[types.NamespacedName{Namespace: ns, Name: "done"}]
	awaitAIJob(d.t, runs, aiplatformv1alpha1.AIJobRunning)
	assert.Zero(d.t, runs.Status.RetryCount)
	assert.Equal(d.t, int32(1), runs.Status.PreemptionCount)
	before := done.Status.CompletionTime
	awaitAIJob(d.t, done, aiplatformv1alpha1.AIJobSucceeded)
	assert.True(d.t, before.Equal(done.Status.CompletionTime))
	assert.Equal(d.t, "42", done.Status.Outputs["answer"])
	var pods corev1.PodList
	require.NoError(d.t, cluster.List(d.t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels{aiplatformv1alpha1.LabelAIJob: done.Name}))
	assert.Empty(d.t, pods.Items, "it does not run again")
}

// keepJobsIn has a job service that is started from now on keep its jobs in these servers.
func keepJobsIn(t *testing.T, database *postgres.Server, queue *redis.Server) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	require.NoError(t, client.IgnoreAlreadyExists(cluster.Create(t.Context(), ns)))
	inCluster := stores.NewProxyOn(t, listenOnNode(t), database.Address).Address
	require.NoError(t, cluster.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: jobServiceName},
		StringData: map[string]string{
			"DATABASE_URL": strings.Replace(database.URL, database.Address, inCluster, 1),
			"REDIS_URL":    "redis://" + stores.NewProxyOn(t, listenOnNode(t), queue.Address).Address + "/0",
		},
	}))
}

func restartJobService(t *testing.T) {
	t.Helper()
	require.NoError(t, cluster.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(operatorNamespace), client.MatchingLabels{"control-plane": "job-service"}))
}

// loseCluster destroys the node and starts another, which has the CRDs and the images, and no operator.
func loseCluster(t *testing.T, store *stores.S3) {
	t.Helper()
	store.Stop()
	script(t, "hack/cluster.sh", "down")
	script(t, "hack/cluster.sh", "up")
	store.Start()
	require.NoError(t, connect())
	script(t, "hack/images.sh", "load")
	script(t, "hack/deploy.sh", "install")
}

// script runs a script of this repository about the local cluster.
func script(t *testing.T, name string, arguments ...string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(root, name), arguments...)
	command.Dir = root
	command.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBECONFIG=") }),
		"DEPLOY_COMPONENTS=job-service local")
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s %v:\n%s", name, arguments, output)
}

// run runs commands of a page in a folder.
func run(t *testing.T, folder, commands string, environment ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	command.Dir, command.Env = folder, append(os.Environ(), environment...)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s\n%s", commands, output)
}

// commandsOf are the shell blocks of a page, by the heading that they stand under.
func commandsOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", page))
	require.NoError(t, err)
	blocks := map[string][]string{}
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, block := range strings.Split(body, "```sh\n")[1:] {
			block, _, closed := strings.Cut(block, "\n```")
			require.True(t, closed)
			blocks[heading] = append(blocks[heading], block)
		}
	}
	return blocks
}
