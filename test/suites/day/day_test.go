package day

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// checkpointInterval of the jobs, and what may come on top of it: the agent's time, twice, and the second by which the
// clock jumps.
const (
	checkpointInterval = 30 * time.Minute
	checkpointSlack    = 2 * time.Minute
	// noticeLoss is the most that a replica whose notice was seen has to do again: what it did between its checkpoint and
	// its end.
	noticeLoss = 45 * time.Second
)

// size of a day. The whole one takes minutes, so that it is asked for: SPOT_DAY=whole.
type size struct {
	jobs     int
	arrivals time.Duration
	work     func(w *world) time.Duration
	length   time.Duration
}

func sizeOfDay() size {
	if os.Getenv("SPOT_DAY") == "whole" {
		return size{50, 12 * time.Hour, func(w *world) time.Duration {
			return 2*time.Hour + time.Duration(w.random.Int64N(int64(6*time.Hour)))
		}, 36 * time.Hour}
	}
	return size{4, 30 * time.Minute, func(w *world) time.Duration {
		return 40*time.Minute + time.Duration(w.random.Int64N(int64(time.Hour)))
	}, 8 * time.Hour}
}

var zones = []string{"us-central1-a", "us-central1-b", "us-central1-f", "us-east1-c"}

func TestASimulatedDay(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	day := sizeOfDay()
	w := newWorld(t, 1, fakegce.Options{
		Latency: fakegce.RealisticLatency(), Zones: zones, PreemptionsPerHour: 0.4,
	})
	began := time.Now()
	w.createVMs(4)
	w.startManager()
	t.Cleanup(func() { w.stop() })
	w.disturb(day.length)
	for n := range day.jobs {
		name := fmt.Sprintf("job-%02d", n)
		work := day.work(w)
		w.cluster.at(w.start.Add(time.Duration(w.random.Int64N(int64(day.arrivals)))), func(time.Time) { w.createJob(name, n, 4, work) })
	}
	w.run(day.length, func() bool { return w.completed(day.jobs) })
	length := w.since()
	require.True(t, w.completed(day.jobs), "after %s: %s", length, w.describe())

	// The instances are not needed any more.
	w.run(length+2*time.Hour, func() bool { return len(w.google.Instances()) == 0 })
	assert.Empty(t, w.google.Instances(), "no instance is left")
	w.report(day, length, time.Since(began))
	w.judge()
}

func (w *world) judge() {
	t := w.t
	assert.Empty(t, w.cluster.record.duplicates, "no replica ran twice at the same time")
	for _, loss := range w.cluster.record.losses {
		most := checkpointInterval + checkpointSlack
		if loss.seen {
			most = noticeLoss
		}
		assert.LessOrEqual(t, loss.again, most, "%s, lost %s after the start, seen %t", loss.replica, loss.at.Sub(w.start), loss.seen)
	}
}

// report the figures.
func (w *world) report(day size, length, took time.Duration) {
	r := &w.cluster.record
	var seen, unseen, down []time.Duration
	for _, loss := range r.losses {
		if loss.seen {
			seen = append(seen, loss.again)
		} else {
			unseen = append(unseen, loss.again)
		}
		down = append(down, loss.down)
	}
	paid := time.Duration(0)
	for _, i := range w.google.History() {
		if !i.Ended.IsZero() {
			paid += i.Ended.Sub(i.Created)
		}
	}
	w.t.Logf("%d jobs in %s, simulated in %s: %d instances, %d preemptions, %d checkpoints, %d starts of replicas",
		day.jobs, length, took.Round(time.Second), len(w.google.History()), r.preemptions, r.checkpoints, r.starts)
	w.t.Logf("done again after a notice that was seen: %s; after one that was not: %s; from loss to start: %s",
		spread(seen), spread(unseen), spread(down))
	w.t.Logf("computed %s on instances paid for %s; requests to the provider: %d, of these lists %d",
		r.computed.Round(time.Minute), paid.Round(time.Minute), w.google.Calls("", ""), w.google.Calls("compute.instances.list", ""))
	for _, text := range slices.Sorted(maps.Keys(w.errors)) {
		w.t.Logf("error, %d times: %s", w.errors[text], text)
	}
}

func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("median %s, most %s of %d", all[len(all)/2].Round(time.Second), all[len(all)-1].Round(time.Second), len(all))
}

// disturb plans what goes wrong.
func (w *world) disturb(length time.Duration) {
	during := func(every time.Duration, do func(now time.Time)) {
		for at := every / 2; at < length; at += time.Duration(float64(every) * (0.5 + w.random.Float64())) {
			w.cluster.at(w.start.Add(at), do)
		}
	}
	during(90*time.Minute, func(now time.Time) {
		zone := zones[w.random.IntN(len(zones))]
		w.google.StockOut(zone)
		w.cluster.at(now.Add(20*time.Minute+time.Duration(w.random.Int64N(int64(time.Hour)))), func(time.Time) { w.google.Restock(zone) })
	})
	during(2*time.Hour, func(time.Time) {
		w.stop()
		w.startManager()
	})
	during(45*time.Minute, func(time.Time) {
		faults := []fakegce.Fault{
			{Method: "compute.instances.insert", Times: 1, LoseAnswer: true},
			{Method: "compute.instances.insert", Times: 1, Twice: true},
			{Method: "compute.instances.delete", Times: 1, LoseAnswer: true},
			{Times: 2, Status: 503, Reason: "backendError", Message: "Backend Error"},
			{Times: 1, Status: 429, Reason: "rateLimitExceeded", RetryAfter: 5 * time.Second},
		}
		w.google.Inject(faults[w.random.IntN(len(faults))])
	})
}

const namespace = "default"

func (w *world) createVMs(count int) {
	ctx := context.Background()
	builders.AllowSpotInstances(w.t, w.cluster.client, namespace)
	require.NoError(w.t, w.cluster.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "gcp-credentials", Namespace: namespace},
		Data:       map[string][]byte{"credentials.json": w.google.CredentialsJSON()},
	}))
	for n := range count {
		vm := &spotv1alpha1.SpotInstanceVM{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("vm-%d", n), Namespace: namespace},
			Spec: spotv1alpha1.SpotInstanceVMSpec{
				VMImage: "projects/test-project/global/images/family/node", GPU: &spotv1alpha1.GPU{Type: "nvidia-tesla-t4", Count: 1},
				GCP: spotv1alpha1.GCP{
					Project: w.google.Project(), Zone: zones[n%4], Zones: zones[(n+1)%4 : (n+1)%4+1], MachineType: "n1-standard-8",
					CredentialsSecretRef: &spotv1alpha1.SecretReference{Name: "gcp-credentials"},
				},
				MaxInstances: 100,
			},
		}
		require.NoError(w.t, w.cluster.client.Create(ctx, vm))
	}
}

func (w *world) createJob(name string, n, vms int, work time.Duration) {
	require.NoError(w.t, w.cluster.client.Create(context.Background(), &spotv1alpha1.SpotInstanceJob{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: spotv1alpha1.SpotInstanceJobSpec{
			Replicas:          ptr.To[int32](2),
			SpotInstanceVMRef: &spotv1alpha1.SpotInstanceVMReference{Name: fmt.Sprintf("vm-%d", n%vms)},
			CheckpointConfig: &spotv1alpha1.CheckpointConfig{
				CheckpointImageRepo: "registry.example.com/checkpoints/" + name,
				CheckpointInterval:  metav1.Duration{Duration: checkpointInterval},
			},
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
				Spec: trainingPod(work),
			}}},
		},
	}))
}

// trainingPod is a pod with so much work, which needs an instance of its own.
func trainingPod(work time.Duration) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "train", Image: "registry.example.com/train:v1", Command: []string{"train"},
			Env: []corev1.EnvVar{{Name: variableWork, Value: work.String()}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("6"), corev1.ResourceMemory: resource.MustParse("20Gi"), gpuName: resource.MustParse("1"),
				},
				Limits: corev1.ResourceList{gpuName: resource.MustParse("1")},
			},
		}},
	}
}

func (w *world) jobs() []spotv1alpha1.SpotInstanceJob {
	var jobs spotv1alpha1.SpotInstanceJobList
	require.NoError(w.t, w.cluster.client.List(context.Background(), &jobs, client.InNamespace(namespace)))
	return jobs.Items
}

func (w *world) completed(want int) bool {
	count := 0
	for _, job := range w.jobs() {
		if job.Status.Phase == spotv1alpha1.JobSucceeded {
			count++
		}
	}
	return count == want
}

// describe says where the jobs are, for a day that does not end.
func (w *world) describe() string {
	text := ""
	for _, job := range w.jobs() {
		text += fmt.Sprintf("\n%s: %s, active %d", job.Name, job.Status.Phase, job.Status.ActiveReplicas)
		for _, condition := range job.Status.Conditions {
			text += fmt.Sprintf("; %s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
	var pods corev1.PodList
	_ = w.cluster.client.List(context.Background(), &pods)
	for _, pod := range pods.Items {
		text += fmt.Sprintf("\npod %s on %q: %s, deleted %t, process %t", pod.Name, pod.Spec.NodeName, pod.Status.Phase,
			pod.DeletionTimestamp != nil, w.cluster.processes[pod.UID] != nil)
	}
	var jobs batchv1.JobList
	_ = w.cluster.client.List(context.Background(), &jobs)
	for _, job := range jobs.Items {
		text += fmt.Sprintf("\nJob %s: deleted %t, had %q, %v", job.Name, job.DeletionTimestamp != nil, w.cluster.told[job.UID], job.Status.Conditions)
	}
	var vms spotv1alpha1.SpotInstanceVMList
	_ = w.cluster.client.List(context.Background(), &vms)
	for _, vm := range vms.Items {
		text += fmt.Sprintf("\n%s: %d instances", vm.Name, vm.Status.Instances)
		for _, i := range vm.Status.ProvisionedInstances {
			text += fmt.Sprintf("; %s %s joined %t ready %v notice %v: %s", i.Name, i.State, i.JoinedCluster, i.ReadyTime, i.PreemptionNoticeTime, i.Message)
		}
	}
	var nodes corev1.NodeList
	_ = w.cluster.client.List(context.Background(), &nodes)
	for _, node := range nodes.Items {
		text += fmt.Sprintf("\nnode %s: deleted %t, ready %t, labels %v, taints %v", node.Name, node.DeletionTimestamp != nil, ready(&node), node.Labels, node.Spec.Taints)
	}
	text += fmt.Sprintf("\nafter %d jumps of the clock, %d turns of the cluster", w.jumps, w.turns)
	for _, i := range w.google.Instances() {
		text += fmt.Sprintf("\ninstance %s in %s: %s", i.Name, i.Zone, i.State)
	}
	for _, note := range slices.Sorted(maps.Keys(w.errors)) {
		text += fmt.Sprintf("\nerror, %d times: %s", w.errors[note], note)
	}
	return text
}
