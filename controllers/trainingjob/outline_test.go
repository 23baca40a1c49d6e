package trainingjob

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// outline is a plan in short, so that a test can state all of it.
type outline struct {
	Apply, Delete, Label []string
	DeleteSelf, More     bool
	Scrape               string
	Again                time.Duration

	State                 mlv1.State
	Reason                string
	Restarts, Disruptions int32
	FailureReason         string
	Workers               mlv1.WorkersStatus
	// Conditions are "True Reason" or "False Reason", by type.
	Conditions map[string]string
}

// conditions is a short name for outline.Conditions.
type conditions = map[string]string

func outlineOf(d desired) outline {
	short := outline{
		DeleteSelf: d.deleteSelf, More: d.more, Scrape: d.scrape, Again: d.again,
		State: d.status.State, Reason: d.status.Reason,
		Restarts: d.status.RestartCount, Disruptions: d.status.DisruptionCount, FailureReason: d.status.FailureReason,
		Conditions: conditions{},
	}
	for _, object := range d.apply {
		short.Apply = append(short.Apply, titleOf(object))
	}
	for _, object := range d.delete {
		short.Delete = append(short.Delete, titleOf(object))
	}
	for _, pod := range d.label {
		short.Label = append(short.Label, pod.Name+" replica-id="+replicaOf(pod))
	}
	slices.Sort(short.Label)
	if d.status.Workers != nil {
		short.Workers = *d.status.Workers
	}
	for _, condition := range d.status.Conditions {
		short.Conditions[condition.Type] = string(condition.Status) + " " + condition.Reason
	}
	return short
}

// titleOf names an object, and of a Job also the attempt.
func titleOf(object client.Object) string {
	switch o := object.(type) {
	case *batchv1.Job:
		return fmt.Sprintf("Job %s, attempt %d", o.Name, build.AttemptOf(o))
	case *corev1.Pod:
		return "Pod " + o.Name
	}
	kind := object.GetObjectKind().GroupVersionKind().Kind // of a PodGroup
	if kind == "" {
		kind = reflect.TypeOf(object).Elem().Name()
	}
	return kind + " " + object.GetName()
}

// see is what is observed of a job at noon, with its workers and pods.
func see(job *mlv1.TrainingJob, workers *batchv1.Job, pods ...*corev1.Pod) observed {
	o := observed{
		now: builders.Noon, settings: build.Settings{WorkerImage: "worker:1", AgentImage: "agent:1"}, job: job, pods: pods, workers: workers,
		children: map[string]client.Object{}, peersLost: map[types.UID]time.Time{},
	}
	for _, pod := range pods {
		if ended := workerProgram.Terminated(pod); ended != nil {
			o.peersLost[pod.UID] = ended.FinishedAt.Time
		}
	}
	if workers != nil {
		o.with(workers)
	}
	return o
}

// with has children exist.
func (o *observed) with(children ...client.Object) {
	for _, object := range children {
		o.children[childKey(object)] = object
	}
}

// after is what is observed later.
func (o observed) after(passed time.Duration) observed {
	o.now = o.now.Add(passed)
	return o
}

// lookingLike says that a plan is as outlined.
func lookingLike(t *testing.T, want outline, got desired) {
	t.Helper()
	if want.Conditions == nil {
		want.Conditions = conditions{}
	}
	assert.Empty(t, cmp.Diff(want, outlineOf(got)))
	assert.Equal(t, phases[got.status.State], got.status.Phase, "the phase that belongs to the state")
}
