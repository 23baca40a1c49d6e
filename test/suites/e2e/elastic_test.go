//go:build e2e

package e2e

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// elastic lets the job have between one and four workers.
func (b *jobBuilder) elastic(epochs int32) *jobBuilder {
	b.job.Spec.Elastic = &mlv1.Elastic{MinWorkers: 1, MaxWorkers: 4}
	b.job.Spec.Hyperparameters.Epochs = ptr.To(epochs)
	return b
}

func scaleTo(t *testing.T, job *mlv1.TrainingJob, workers int32) {
	t.Helper()
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: workers}}
	require.NoError(t, cluster.SubResource("scale").Update(t.Context(), job.DeepCopy(), client.WithSubResourceBody(scale)))
}

// trainsWith is a condition for reaches: so many workers train, none comes or goes.
func trainsWith(workers int32) func(*mlv1.TrainingJob) bool {
	return func(job *mlv1.TrainingJob) bool {
		return job.Status.State == mlv1.StateRunning && job.Status.Reason == reasons.WorkersRunning &&
			job.Status.Workers.Total == workers && job.Status.Workers.Active == workers
	}
}

// logOf is what replica 0 has written so far.
func logOf(t *testing.T, job *mlv1.TrainingJob) string {
	t.Helper()
	pod := newest(t, job)["0"]
	return log(t.Context(), &pod)
}

// joins waits until the replicas train together, so many times.
func joins(t *testing.T, job *mlv1.TrainingJob, replicas string, times int) {
	t.Helper()
	eventually(t, "replicas "+replicas+" train together", func(context.Context) (bool, error) {
		text := logOf(t, job)
		if strings.Count(text, "replicas "+replicas+" train") < times {
			return false, nil
		}
		rounds := strings.Split(text, "replicas "+replicas+" train")
		return strings.Contains(rounds[len(rounds)-1], "joined"), nil
	})
}

// newest are the pods of a job, by replica, of those of the same replica the newest.
func newest(t *testing.T, job *mlv1.TrainingJob) map[string]corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &list, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name}))
	pods := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		replica := pod.Annotations[batchv1.JobCompletionIndexAnnotation]
		if before, known := pods[replica]; !known || before.CreationTimestamp.Before(&pod.CreationTimestamp) {
			pods[replica] = pod
		}
	}
	return pods
}

var (
	stopAt    = regexp.MustCompile(`stopping after step (\d+)`)
	restoreAt = regexp.MustCompile(`restored at epoch \d+ step (\d+)`)
)

// resumptions are, for each time that training went on in another world, the last step before and the first after.
func resumptions(text string) (pairs [][2]int) {
	last := 0
	for line := range strings.Lines(text) {
		if found := stopAt.FindStringSubmatch(line); found != nil {
			last, _ = strconv.Atoi(found[1])
		}
		if found := restoreAt.FindStringSubmatch(line); found != nil {
			step, _ := strconv.Atoi(found[1])
			pairs = append(pairs, [2]int{last, step})
		}
	}
	return pairs
}

func TestElasticJobGrowsToFourWorkersAndShrinksToTwoWithoutLosingAStep(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "elastic").elastic(35).pace(150e6).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "two workers train", trainsWith(2))
	joins(t, job, "0, 1", 1)
	before := newest(t, job)

	scaleTo(t, job, 4)
	grown := reaches(t, job, "four workers train", trainsWith(4))
	joins(t, job, "0, 1, 2, 3", 1)
	eventually(t, "they go on with the state", func(context.Context) (bool, error) { return len(resumptions(logOf(t, job))) > 0, nil })
	assert.Zero(t, grown.Status.RestartCount)
	larger := newest(t, job)
	require.Len(t, larger, 4)
	for _, replica := range []string{"0", "1"} {
		assert.Equal(t, before[replica].UID, larger[replica].UID, "pod %s stays", replica)
	}

	scaleTo(t, job, 2)
	reaches(t, job, "two workers train again", trainsWith(2))
	joins(t, job, "0, 1", 2)

	done := completes(t, job)
	pairs := resumptions(logOf(t, job))
	assert.GreaterOrEqual(t, len(pairs), 2)
	for _, pair := range pairs {
		assert.Equal(t, pair[0], pair[1], "training goes on at the step at which it stopped")
	}
	assert.Zero(t, done.Status.RestartCount)
	assert.Equal(t, int32(35), done.Status.CurrentEpoch)
	assert.Equal(t, "100%", done.Status.Progress)
	after := newest(t, job)
	assert.Equal(t, before["0"].UID, after["0"].UID)
	reasons := eventReasons(t, job)
	assert.Contains(t, reasons, "Rescaling")
	assert.Contains(t, reasons, "Rescaled")
	assert.NotContains(t, reasons, "Restarting")
}

func eventReasons(t *testing.T, job *mlv1.TrainingJob) (reasons []string) {
	t.Helper()
	events, err := cluster.typed.CoreV1().Events(job.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, event := range events.Items {
		if event.InvolvedObject.Kind == "TrainingJob" {
			reasons = append(reasons, event.Reason)
		}
	}
	return reasons
}

func TestElasticJobGoesOnWithoutAKilledRankUntilItRejoins(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "lostrank").elastic(40).pace(150e6).obj()
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "two workers train", trainsWith(2))
	joins(t, job, "0, 1", 1)
	before := newest(t, job)

	full := podQuota(t, job.Namespace, "1") // it is not replaced before the others have gone on without it
	victim := before["1"]
	execute(t, &victim, "kill -9 -1 || true") // all but the container's first process and the shell
	lost := reaches(t, job, "a worker is lost", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.WorkerLost })
	assert.Equal(t, mlv1.StateRunning, lost.Status.State)
	assert.Equal(t, int32(1), lost.Status.WorkerFailures)
	assert.Contains(t, lost.Status.FailureReason, "was killed by signal 9 (exit code 137)")

	joins(t, job, "0", 1)

	require.NoError(t, cluster.Delete(t.Context(), full))
	reaches(t, job, "it has rejoined", trainsWith(2))
	joins(t, job, "0, 1", 2)
	text := logOf(t, job)
	after := newest(t, job)
	assert.Equal(t, before["0"].UID, after["0"].UID, "replica 0 stays")
	assert.NotEqual(t, before["1"].UID, after["1"].UID, "replica 1 is another pod")
	assert.Contains(t, text, "replicas 0 train with 1 ranks")
	for _, pair := range resumptions(text) {
		assert.Positive(t, pair[1])
	}

	done := completes(t, job)
	assert.Zero(t, done.Status.RestartCount)
	assert.Equal(t, int32(1), done.Status.WorkerFailures)
	assert.Subset(t, eventReasons(t, job), []string{"WorkerLost", "WorkerRejoined"})
}

func TestHorizontalPodAutoscalerScalesAnElasticJob(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "autoscaled").alone().elastic(60).pace(150e6).obj()
	serveEpochsLeft(t)
	require.NoError(t, cluster.Create(t.Context(), job))
	reaches(t, job, "one worker trains", trainsWith(1))
	reaches(t, job, "it has reported an epoch", func(job *mlv1.TrainingJob) bool { return job.Status.CurrentEpoch >= 1 })

	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "ml.example.com/v1", Kind: "TrainingJob", Name: job.Name},
			MinReplicas:    ptr.To[int32](1), MaxReplicas: 4,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ObjectMetricSourceType,
				Object: &autoscalingv2.ObjectMetricSource{
					DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "ml.example.com/v1", Kind: "TrainingJob", Name: job.Name},
					Metric:          autoscalingv2.MetricIdentifier{Name: epochsLeft},
					Target:          autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("35"))},
				},
			}},
		},
	}
	require.NoError(t, cluster.Create(t.Context(), hpa))
	scaled := reaches(t, job, "the autoscaler has made it two workers", trainsWith(2))
	assert.Equal(t, int32(2), scaled.Spec.NumWorkers)
	assert.Zero(t, scaled.Status.RestartCount)
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(hpa), hpa))
	for _, kind := range []autoscalingv2.HorizontalPodAutoscalerConditionType{autoscalingv2.AbleToScale, autoscalingv2.ScalingActive} {
		assert.True(t, slices.ContainsFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		}), "%s: %+v", kind, hpa.Status.Conditions)
	}
	assert.Equal(t, int32(2), hpa.Status.DesiredReplicas)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"numWorkers":5}}`))
	assert.ErrorContains(t, cluster.Patch(t.Context(), job.DeepCopy(), patch), "lies outside spec.elastic (1 to 4)")
}
