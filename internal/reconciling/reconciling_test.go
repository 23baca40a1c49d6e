package reconciling

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

func pod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	is := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Labels: map[string]string{"job": "bert"}}}
	for _, edit := range edits {
		edit(is)
	}
	return is
}

func deleted(is *corev1.Pod) {
	is.DeletionTimestamp, is.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/stays"}
}

func TestWhatFailsIsTriedAgainAfterHalfAMinuteAtTheLatest(t *testing.T) {
	limiter, request := Options(1).RateLimiter, reconcile.Request{NamespacedName: types.NamespacedName{Name: "job"}}
	var waits []time.Duration
	for range 100 {
		waits = append(waits, limiter.When(request))
	}
	assert.Equal(t, 5*time.Millisecond, waits[0])
	assert.Equal(t, 10*time.Millisecond, waits[1])
	assert.Equal(t, 30*time.Second, waits[99])
}

func TestObject(t *testing.T) {
	reader := fake.NewClientBuilder().WithObjects(pod("is"), pod("ends", deleted)).Build()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		name    string
		again   time.Duration
		err     error
		want    ctrl.Result
		wantErr error
		gone    bool
	}{
		"a step":                    {name: "is", again: time.Hour, want: ctrl.Result{RequeueAfter: time.Hour}},
		"an error":                  {name: "is", err: broken, wantErr: broken},
		"an error that passes":      {name: "is", err: child.ErrLeftover, want: ctrl.Result{RequeueAfter: 500 * time.Millisecond}},
		"an error after what comes": {name: "is", again: time.Second / 4, err: child.ErrLeftover, want: ctrl.Result{RequeueAfter: time.Second / 4}},
		"none":                      {name: "was", gone: true},
		"one that is being deleted": {name: "ends", gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			gone := false
			result, err := Object(t.Context(), reader, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: test.name}}, &corev1.Pod{},
				func(key types.NamespacedName) { gone = key.Name == test.name },
				func(_ context.Context, is *corev1.Pod) (time.Duration, error) {
					assert.Equal(t, test.name, is.Name)
					return test.again, test.err
				})
			assert.Equal(t, test.want, result)
			require.ErrorIs(t, err, test.wantErr)
			assert.Equal(t, test.gone, gone)
		})
	}
}

func TestWaits(t *testing.T) {
	assert.Equal(t, time.Second, Sooner(0, time.Second))
	assert.Equal(t, time.Second, Sooner(time.Minute, time.Second))
	assert.Equal(t, time.Second, Sooner(time.Second, time.Minute))
	assert.Equal(t, time.Millisecond, Sooner(time.Second, -time.Minute))
	for before, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		assert.Equal(t, want, Doubled(time.Second, 5*time.Second, before))
	}
}

func TestChangesConcernObjects(t *testing.T) {
	reader := fake.NewClientBuilder().WithObjects(pod("a"), pod("b")).Build()
	matching := Matching(t.Context(), reader, &corev1.PodList{}, func(is *corev1.Pod) bool { return is.Name == "b" }, client.InNamespace("team"))
	assert.Equal(t, []reconcile.Request{Named("team", "b")}, matching)
	assert.Len(t, Matching[client.Object](t.Context(), reader, &corev1.PodList{}, nil), 2)
	assert.Equal(t, []reconcile.Request{Named("team", "bert")}, ByLabel("job")(t.Context(), pod("a")))
	assert.Empty(t, ByLabel("other")(t.Context(), pod("a")))

	changed := Changed(func(before, after *corev1.Pod) bool { return before.Name != after.Name })
	assert.True(t, changed.Update(event.UpdateEvent{ObjectOld: pod("a"), ObjectNew: pod("b")}))
	assert.False(t, changed.Update(event.UpdateEvent{ObjectOld: pod("a"), ObjectNew: pod("a")}))
	assert.True(t, changed.Create(event.CreateEvent{Object: pod("a")}))

	none, err := Get[corev1.Pod](t.Context(), reader, "team", "c")
	require.NoError(t, err)
	assert.Nil(t, none)
	one, err := Get[corev1.Pod](t.Context(), reader, "team", "a")
	require.NoError(t, err)
	assert.Equal(t, "a", one.Name)
}
