package checkpointbackup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	crds "github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(apiextensionsv1.AddToScheme)
	api    = apiserver.New()
)

func TestMain(m *testing.M) { api.Main(m) }

const patience = 3 * time.Minute

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	require.Eventually(t, check, patience, 50*time.Millisecond, what)
}

// install has the cluster serve the versions, and no others.
func install(t *testing.T, c client.Client, versions ...string) {
	t.Helper()
	crd, err := crds.CRD(versions...)
	require.NoError(t, err)
	_, err = envtest.InstallCRDs(api.Config(t), envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: patience})
	require.NoError(t, err)
	t.Cleanup(func() { remove(t, c) })
}

func remove(t *testing.T, c client.Client) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "checkpointbackups.migration.dcnlab.com"}}
	require.NoError(t, client.IgnoreNotFound(c.Delete(ctx, crd)))
	eventually(t, "the CRD is gone", func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(crd), crd)) })
}

func backup(name string) checkpointbackup.Backup {
	return checkpointbackup.Backup{
		Key: types.NamespacedName{Namespace: "default", Name: name}, Labels: map[string]string{"job": "bert"},
		Spec: checkpointbackup.Spec{
			Schedule: checkpointbackup.Immediately, Pod: types.NamespacedName{Namespace: "default", Name: "p"},
			Resource:   checkpointbackup.Resource{APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: "j"},
			Registry:   checkpointbackup.Registry{URL: "registry.example.com", Repository: "team/checkpoints"},
			Containers: []checkpointbackup.Container{{Name: "train", Image: "registry.example.com/team/checkpoints:1"}},
		},
	}
}

func TestEachServedVersionIsUsed(t *testing.T) {
	ctx := t.Context()
	c, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	discover, err := discovery.NewDiscoveryClientForConfig(api.Config(t))
	require.NoError(t, err)
	clock := testingclock.NewFakePassiveClock(time.Now())
	backups := checkpointbackup.NewClient(c, c, nil, discover, clock)
	later := func() { clock.SetTime(clock.Now().Add(16 * time.Second)) }

	version, err := backups.Version()
	require.NoError(t, err)
	assert.Empty(t, version)
	_, err = backups.List(ctx, "default", nil)
	require.ErrorIs(t, err, checkpointbackup.ErrNotServed)
	require.ErrorIs(t, backups.Create(ctx, backup("early")), checkpointbackup.ErrNotServed)
	require.NoError(t, backups.Delete(ctx, backup("early")))

	for _, test := range []struct {
		served []string
		want   string
	}{{[]string{"v1alpha1"}, "v1alpha1"}, {[]string{"v1"}, "v1"}, {nil, "v1"}} {
		install(t, c, test.served...)
		later()
		version, err := backups.Version()
		require.NoError(t, err)
		require.Equal(t, test.want, version)

		owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "u"}
		require.NoError(t, backups.Create(ctx, backup("one"), owner))
		assert.True(t, apierrors.IsAlreadyExists(backups.Create(ctx, backup("one"))), "a name is asked for once")
		all, err := backups.List(ctx, "default", map[string]string{"job": "bert"})
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.Equal(t, backup("one").Spec, all[0].Spec)
		object, err := backups.Get(ctx, nil, all[0].Key)
		require.NoError(t, err)
		assert.Equal(t, []metav1.OwnerReference{owner}, object.GetOwnerReferences())
		none, err := backups.List(ctx, "default", map[string]string{"job": "other"})
		require.NoError(t, err)
		assert.Empty(t, none)

		object.Object["status"] = checkpointbackup.EncodeStatus(checkpointbackup.Status{
			Phase: checkpointbackup.Completed, Completed: clock.Now(), Images: []checkpointbackup.Container{{Name: "train", Image: "i"}},
		})
		require.NoError(t, c.Status().Update(ctx, object))
		require.NoError(t, c.Get(ctx, all[0].Key, object))
		images := object.Object["status"].(map[string]any)
		assert.Len(t, images["containers"], 1, "the schema knows the field")
		assert.Len(t, images["builtImages"], 1)

		require.NoError(t, backups.Delete(ctx, all[0]))
		require.NoError(t, backups.Delete(ctx, all[0]), "it is gone already")
		remove(t, c)
		// Before the next look at what is served, the server's own answer says it, soon after the CRD is gone.
		eventually(t, "the kind is not served", func() bool {
			_, err := backups.List(ctx, "default", nil)
			return errors.Is(err, checkpointbackup.ErrNotServed)
		})
	}
}

func TestAWatchBeginsWhenTheKindComesAndEndsWhenItGoes(t *testing.T) {
	c, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(api.Config(t), ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	require.NoError(t, err)
	backups, err := checkpointbackup.ForManager(mgr)
	require.NoError(t, err)
	backups.LookEvery(200 * time.Millisecond)
	var mutex sync.Mutex
	seen, versions := map[string]int{}, []string{}
	counted := func(name string) int {
		mutex.Lock()
		defer mutex.Unlock()
		return seen[name]
	}
	last := func() string {
		mutex.Lock()
		defer mutex.Unlock()
		if len(versions) == 0 {
			return "none"
		}
		return versions[len(versions)-1]
	}
	changed := func(_ context.Context, version string, _ checkpointbackup.Queue) {
		mutex.Lock()
		defer mutex.Unlock()
		versions = append(versions, version)
	}
	count := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		mutex.Lock()
		defer mutex.Unlock()
		seen[request.Name]++
		return reconcile.Result{}, nil
	})
	require.NoError(t, ctrl.NewControllerManagedBy(mgr).Named("watch").
		WatchesRawSource(backups.Source(&handler.EnqueueRequestForObject{}, changed)).Complete(count))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	eventually(t, "it is known that none is served", func() bool { return last() == "" })

	for i, version := range []string{"v1alpha1", "v1"} {
		install(t, c, version)
		eventually(t, version+" is served", func() bool { return last() == version })
		name := fmt.Sprintf("watched-%d", i)
		require.NoError(t, c.Create(t.Context(), checkpointbackup.Encode(backup(name), version)))
		eventually(t, "the controller is asked to look", func() bool { return counted(name) > 0 })
		remove(t, c)
		eventually(t, "it is known that none is served any more", func() bool { return last() == "" })
	}
}
