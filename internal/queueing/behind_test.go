package queueing

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// A manager that had just started admitted a job to what two others had: its cache did not have them yet.
func TestNothingIsDecidedBeforeTheCacheHasCaughtUp(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, aiplatformv1alpha1.AddToScheme(scheme))
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	job := func(name, version string) *aiplatformv1alpha1.AIJob {
		return &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", ResourceVersion: version}}
	}
	var lists, looks atomic.Int32
	direct := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job("same", "3"), job("new", "7"), job("newer", "5"), job("goes", "4"), job("elsewhere", "8")).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if lists.Add(1) == 1 {
					return errors.New("the API server does not answer")
				}
				return c.List(ctx, list, options...)
			},
		}).Build()
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job("same", "3"), job("newer", "6")).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			switch key.Name {
			case "new":
				looks.Add(1)
			case "elsewhere":
				return errors.New("unknown namespace for the cache")
			}
			return c.Get(ctx, key, object, options...)
		},
	}).Build()
	done := make(chan error, 1)
	go func() {
		done <- catchUpWith(t.Context(), cached, direct, &aiplatformv1alpha1.AIJob{}, aiplatformv1alpha1.GroupVersion.WithKind("AIJob"))
	}()
	looked := func(times int32) {
		t.Helper()
		for from := looks.Load(); looks.Load() < from+times; {
			select {
			case err := <-done:
				t.Fatalf("it ended too early: %v", err)
			default:
			}
		}
	}
	looked(2)
	require.NoError(t, direct.Delete(t.Context(), job("goes", "")))
	looked(2)
	before := job("new", "")
	require.NoError(t, cached.Create(t.Context(), before)) // as it was first
	looked(2)
	for before.ResourceVersion != "7" {
		require.NoError(t, cached.Update(t.Context(), before))
	}
	assert.NoError(t, <-done)
}
