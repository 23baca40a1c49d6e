package queuestatus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

// figures that a test sets.
type queueFigures struct {
	known bool
	of    queueing.QueueFigures
}

func (f *queueFigures) Queue(string) (queueing.QueueFigures, bool) { return f.of, f.known }
func (f *queueFigures) Changes(string) source.Source               { return nil }

// world is a queue on a real API server whose status writes are counted.
type world struct {
	*QueueReconciler
	t       *testing.T
	figures *queueFigures
	clock   *clocktesting.FakePassiveClock
	name    string
	writes  int
}

func newQueueWorld(t *testing.T, edit func(*aiplatformv1alpha1.AIJobQueueSpec)) *world {
	t.Helper()
	w := &world{t: t, figures: &queueFigures{}, clock: clocktesting.NewFakePassiveClock(noon)}
	api, err := client.NewWithWatch(server.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	counting := interceptor.NewClient(api, interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
	) error {
		w.writes++
		return c.SubResource(sub).Patch(ctx, object, patch, options...)
	}})
	q := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{GenerateName: "q-"}}
	edit(&q.Spec)
	require.NoError(t, api.Create(t.Context(), q))
	w.name = q.Name
	w.QueueReconciler = &QueueReconciler{Client: counting, Clock: w.clock, Figures: w.figures}
	return w
}

func (w *world) reconcile() reconcile.Result {
	w.t.Helper()
	result, err := w.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: w.name}})
	require.NoError(w.t, err)
	return result
}

func (w *world) now() *aiplatformv1alpha1.AIJobQueue {
	w.t.Helper()
	var q aiplatformv1alpha1.AIJobQueue
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: w.name}, &q))
	return &q
}

func TestFiguresAreWrittenSparingly(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t, func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	w.reconcile()
	assert.Zero(t, w.writes, "nothing is said before the jobs are known")

	w.figures.known, w.figures.of.Depth = true, 5
	assert.Equal(t, reconcile.Result{}, w.reconcile())
	assert.EqualValues(t, 5, w.now().Status.Depth)

	w.figures.of.Depth = 6
	assert.Equal(t, reconcile.Result{RequeueAfter: 3 * time.Second}, w.reconcile())
	w.clock.SetTime(noon.Add(2 * time.Second))
	assert.Equal(t, reconcile.Result{RequeueAfter: time.Second}, w.reconcile())
	assert.Equal(t, 1, w.writes)
	w.clock.SetTime(noon.Add(3 * time.Second))
	w.reconcile()
	assert.EqualValues(t, 6, w.now().Status.Depth)
	for range 3 {
		assert.Equal(t, reconcile.Result{}, w.reconcile())
	}
	assert.Equal(t, 2, w.writes, "at rest nothing is written")

	q := w.now()
	q.Spec.Suspend = new(true)
	require.NoError(t, w.Update(t.Context(), q))
	w.reconcile()
	assert.Equal(t, reasons.QueueSuspended, w.now().Status.Conditions[0].Reason, "a condition does not wait")
}

func TestAPriorityClassThatIsMissingIsTold(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t, func(s *aiplatformv1alpha1.AIJobQueueSpec) { s.PriorityClass = "aijobqueue-test" })
	w.figures.known = true
	w.reconcile()
	assert.Equal(t, reasons.PriorityClassNotFound, w.now().Status.Conditions[0].Reason)

	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "aijobqueue-test"}, Value: 1}
	require.NoError(t, w.Create(t.Context(), class))
	assert.Contains(t, w.queuesOfClass(t.Context(), class), reconcile.Request{NamespacedName: client.ObjectKey{Name: w.name}})
	w.reconcile()
	assert.Equal(t, reasons.Ready, w.now().Status.Conditions[0].Reason)
}

func TestAQueueThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	w := newQueueWorld(t, func(*aiplatformv1alpha1.AIJobQueueSpec) {})
	require.NoError(t, w.Delete(t.Context(), w.now()))
	assert.Equal(t, reconcile.Result{}, w.reconcile())
}
