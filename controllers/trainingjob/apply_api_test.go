package trainingjob

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAPIWhatCannotBeDeletedHoldsUpOnlyTheNextAttempt(t *testing.T) {
	c := newCluster(t)
	direct, err := client.NewWithWatch(c.config, client.Options{Scheme: c.Scheme()})
	require.NoError(t, err)
	refusing := interceptor.NewClient(direct, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return errors.New("the webhook does not answer")
		},
	})
	r := &Reconciler{Client: refusing, Direct: direct}
	job := c.submit(builders.TrainingJob("bert").Workers(2))
	workers := build.Workers(job, build.Settings{WorkerImage: "worker:1"}, 0)
	leftover := &corev1.Pod{}
	leftover.Namespace, leftover.Name = c.namespace, "bert-0-left"
	o := observed{job: job, children: map[string]client.Object{}}
	d := desired{
		delete: []client.Object{leftover}, apply: []client.Object{build.ServiceAccount(job), workers, build.HeadlessService(job)},
	}

	require.ErrorContains(t, r.apply(t.Context(), o, d), "delete Pod bert-0-left")
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &corev1.Service{}} {
		name := build.HeadlessName(job)
		if _, account := object.(*corev1.ServiceAccount); account {
			name = build.ServiceAccountName(job)
		}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: name}, object), "it is independent")
	}
	key := client.ObjectKeyFromObject(workers)
	assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), key, &batchv1.Job{})), "an earlier worker may still run")

	// The Job of the present attempt has its size all the same.
	live := workers.DeepCopy()
	require.NoError(t, c.Create(t.Context(), live))
	o.children[childKey(live)] = live.DeepCopy()
	workers.Spec.Parallelism = ptr.To[int32](1)
	d.apply = []client.Object{workers}
	require.ErrorContains(t, r.apply(t.Context(), o, d), "delete Pod bert-0-left")
	require.NoError(t, c.Get(t.Context(), key, live))
	assert.Equal(t, int32(1), *live.Spec.Parallelism)
}
