//go:build olm

package olm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// userNamespace holds what belongs to the operator's users.
const userNamespace = "olm-e2e"

// longJob trains for some minutes, in which the operator can be upgraded more than once.
func longJob(epochs int32) *mlv1.TrainingJob {
	return &mlv1.TrainingJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: userNamespace, Name: "digits"},
		Spec: mlv1.TrainingJobSpec{
			Model: "cnn", Dataset: "digits", NumWorkers: 2, GPUsPerWorker: ptr.To[int32](0),
			Hyperparameters: &mlv1.Hyperparameters{
				Epochs: ptr.To(epochs), BatchSize: ptr.To[int32](32), LearningRate: ptr.To(0.003), Optimizer: "adamw",
			},
			Resources: &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			Env: []corev1.EnvVar{{Name: "STEP_DELAY_SECONDS", Value: "0.25"}},
			Checkpoint: &mlv1.Checkpoint{
				Frequency: 2, Retention: 3,
				Storage: mlv1.CheckpointStorage{Type: mlv1.StoragePVC, Size: ptr.To(resource.MustParse("1Gi"))},
			},
		},
	}
}

// workerPods are the UIDs of a job's pods by name.
func workerPods(ctx context.Context, job *mlv1.TrainingJob) (map[string]types.UID, error) {
	var list corev1.PodList
	err := cluster.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels{mlv1.LabelTrainingJob: job.Name})
	pods := map[string]types.UID{}
	for _, pod := range list.Items {
		pods[pod.Name] = pod.UID
	}
	return pods, err
}

// witness looks at a job all the time and remembers whatever harmed it.
type witness struct {
	// job is a copy: the test reads the job again meanwhile.
	job  *mlv1.TrainingJob
	pods map[string]types.UID

	mutex    sync.Mutex
	progress int
	state    mlv1.State
	harm     []string
	stop     context.CancelFunc
	stopped  chan struct{}
}

// observe starts to look at a running job.
func observe(t *testing.T, job *mlv1.TrainingJob) *witness {
	t.Helper()
	pods, err := workerPods(t.Context(), job)
	require.NoError(t, err)
	require.Len(t, pods, int(job.Spec.NumWorkers))
	ctx, stop := context.WithCancel(t.Context())
	w := &witness{job: job.DeepCopy(), pods: pods, stop: stop, stopped: make(chan struct{})}
	go func() {
		defer close(w.stopped)
		for ctx.Err() == nil {
			w.look(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(poll):
			}
		}
	}()
	t.Cleanup(w.end)
	return w
}

func (w *witness) look(ctx context.Context) {
	var job mlv1.TrainingJob
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(w.job), &job); err != nil {
		if ctx.Err() == nil {
			w.note("the job cannot be read: " + err.Error())
		}
		return
	}
	pods, err := workerPods(ctx, w.job)
	if err == nil && !maps.Equal(pods, w.pods) {
		w.note(fmt.Sprintf("its pods were %v and are %v", w.pods, pods))
	}
	w.mutex.Lock()
	before := w.progress
	w.state = job.Status.State
	w.mutex.Unlock()
	if job.Status.RestartCount != 0 {
		w.note(fmt.Sprintf("it was restarted: %s", job.Status.FailureReason))
	}
	if job.Status.State != mlv1.StateRunning && job.Status.State != mlv1.StateCompleted {
		w.note("it was " + string(job.Status.State))
	}
	now, err := strconv.Atoi(strings.TrimSuffix(job.Status.Progress, "%"))
	if err != nil || now < before {
		w.note(fmt.Sprintf("its progress was %d%% and is %q", before, job.Status.Progress))
		return
	}
	w.mutex.Lock()
	w.progress = now
	w.mutex.Unlock()
}

func (w *witness) note(harm string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !slices.Contains(w.harm, harm) {
		w.harm = append(w.harm, harm)
	}
}

// says what the job's state and progress are.
func (w *witness) says() (mlv1.State, int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.state, w.progress
}

func (w *witness) end() {
	w.stop()
	<-w.stopped
}

// assertUnharmed fails when the job was not left alone.
func (w *witness) assertUnharmed(t *testing.T) {
	t.Helper()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	assert.Empty(t, w.harm, "what happened to the job")
}
