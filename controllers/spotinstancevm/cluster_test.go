package spotinstancevm

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// patience bounds every wait for the manager.
const patience = 3 * time.Minute

// glance is how often is looked whether something has happened: each look asks the API server.
const glance = 100 * time.Millisecond

const (
	zoneA = "us-central1-a"
	zoneB = "us-central1-b"
)

// cluster is a namespace of a real API server, and a Compute Engine. The test plays the machines, which become nodes, and
// the scheduler.
type cluster struct {
	client.Client

	t         testing.TB
	config    *rest.Config
	namespace string
	gce       *fakegce.Server
	other     *fakegce.Server // has another project; nil when the test needs none
	running   *manager        // the last that was started
	mute      bool            // machines do not become nodes
	own       atomic.Int32    // how often the operator's own identity was used
}

// alive says whether the last manager that was started has not crashed.
func (c *cluster) alive() bool { return c.running.fuse.alive() }

func (c *cluster) pods() []corev1.Pod {
	c.t.Helper()
	var pods corev1.PodList
	require.NoError(c.t, c.List(c.t.Context(), &pods, client.InNamespace(c.namespace)))
	return pods.Items
}

// briefly is how long things take in tests: not nothing, so that operations are pending for a while.
var briefly = fakegce.Latency{
	Accept: 20 * time.Millisecond, Provision: 50 * time.Millisecond, Stage: 50 * time.Millisecond, Stop: 50 * time.Millisecond,
	Notice: 300 * time.Millisecond,
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	config := api.Config(t)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, direct.Create(t.Context(), namespace))
	c := &cluster{Client: direct, t: t, config: config, namespace: namespace.Name}
	builders.AllowSpotInstances(t, c, c.namespace)
	c.gce = fakegce.Start(t, fakegce.Options{Latency: briefly, Hooks: fakegce.Hooks{OnRunning: c.boot, OnGone: c.die}})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "gcp", Namespace: c.namespace}}
	secret.Data = map[string][]byte{credentialsKey: c.gce.CredentialsJSON()}
	require.NoError(t, direct.Create(t.Context(), secret))
	t.Cleanup(func() {
		var nodes corev1.NodeList
		ctx := context.Background()
		if direct.List(ctx, &nodes, client.MatchingLabels{"test": c.namespace}) == nil {
			for i := range nodes.Items {
				_ = direct.Delete(ctx, &nodes.Items[i])
			}
		}
	})
	return c
}

// boot plays a machine that becomes a node.
func (c *cluster) boot(i fakegce.Instance) {
	if c.mute {
		return
	}
	owner, _ := inventory.OwnerOf(&cloud.Instance{Name: i.Name, Labels: i.Labels})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: map[string]string{
		"test": c.namespace, spotv1alpha1.LabelSpotInstanceVM: owner.VM.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: owner.VM.Namespace,
	}}}
	ctx := context.Background()
	if err := c.Create(ctx, node); err != nil {
		return
	}
	next := node.DeepCopy()
	// Without that of a node that is not ready, by the API server.
	next.Spec.Taints = []corev1.Taint{{Key: spotv1alpha1.TaintUnverified, Effect: corev1.TaintEffectNoSchedule}}
	_ = c.Patch(ctx, next, client.MergeFrom(node))
	node = next.DeepCopy()
	next.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("14Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	if i.GPUs > 0 {
		next.Status.Allocatable["nvidia.com/gpu"] = *resource.NewQuantity(i.GPUs, resource.DecimalSI)
	}
	next.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	_ = c.Status().Patch(ctx, next, client.MergeFrom(node))
}

// fakeInstance is what the provider would say of an instance that a test makes up.
func fakeInstance(vm *spotv1alpha1.SpotInstanceVM, name string) fakegce.Instance {
	owner := inventory.Owner{Cluster: "this", VM: client.ObjectKeyFromObject(vm), UID: vm.UID}
	return fakegce.Instance{Name: name, Labels: owner.Labels()}
}

// die plays the node lifecycle controller when a machine is off.
func (c *cluster) die(i fakegce.Instance) {
	ctx := context.Background()
	var node corev1.Node
	if c.Get(ctx, client.ObjectKey{Name: i.Name}, &node) != nil {
		return
	}
	next := node.DeepCopy()
	next.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.Now()}}
	_ = c.Status().Patch(ctx, next, client.MergeFrom(&node))
}

// manager is a manager that runs.
type manager struct {
	*fuse

	reconciler *Reconciler
	interval   time.Duration // between two lists of a zone
	stop       func()
}

// start runs a manager for the cluster, set up like the real one. The fuse may cut it off.
func (c *cluster) start(f *fuse) *manager {
	c.t.Helper()
	m := &manager{fuse: f, interval: 300 * time.Millisecond}
	c.running = m
	mgr := managers.New(c.t, c.config, c.Scheme(), cache.Options{
		DefaultNamespaces: map[string]cache.Config{c.namespace: {}}, ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: nodenotice.Trim}},
	}, m.wrap)
	uncached, err := client.New(mgr.GetConfig(), client.Options{Scheme: c.Scheme()})
	require.NoError(c.t, err)
	m.reconciler = &Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Secrets: uncached, Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("spot-training-operator"), Metrics: metrics.NewSpotInstances(prometheus.NewRegistry()),
		Pace: Pace{First: 30 * time.Millisecond, Most: time.Second, Bind: 500 * time.Millisecond},
		Provide: func(ctx context.Context, account inventory.Account) (cloud.Provider, error) {
			gce := c.gce
			if account.Project != gce.Project() {
				gce = c.other
			}
			if len(account.Credentials) == 0 {
				c.own.Add(1)
				account.Credentials = gce.CredentialsJSON()
			}
			provider, err := gcp.New(ctx, gcp.Options{
				Project: account.Project, Credentials: account.Credentials, Endpoint: gce.URL(), Rate: 10000, Burst: 1000,
			})
			if err != nil {
				return nil, err
			}
			return &fused{provider, f}, nil
		},
		Joining: &KubeadmJoining{Client: uncached, Direct: mgr.GetAPIReader(), Namespace: c.namespace},
		Uses:    func([]string) (map[string]queueing.NodeUse, bool) { return nil, true },
		Queued:  podsWithoutPlace,
	}
	err = m.reconciler.SetupWithManager(mgr.Context, mgr, Options{Concurrency: 4, ListInterval: m.interval, Namespaces: []string{c.namespace}})
	require.NoError(c.t, err)
	m.stop = mgr.Run()
	return m
}

// vm creates a SpotInstanceVM.
func (c *cluster) vm(name string, edits ...func(*spotv1alpha1.SpotInstanceVM)) *spotv1alpha1.SpotInstanceVM {
	c.t.Helper()
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}}
	vm.Spec.VMImage = "projects/p/global/images/family/node"
	vm.Spec.GCP = spotv1alpha1.GCP{
		Project: c.gce.Project(), Zone: zoneA, Zones: []string{zoneB}, MachineType: "n1-standard-4",
		CredentialsSecretRef: &spotv1alpha1.SecretReference{Name: "gcp"},
	}
	vm.Spec.MaxInstances = 4
	vm.Spec.IdleTimeout = &metav1.Duration{Duration: time.Hour}
	vm.Spec.KubeadmJoinConfig = spotv1alpha1.KubeadmJoinConfig{
		ControlPlaneEndpoint: "10.0.0.1:6443", CACertHash: "sha256:" + strings.Repeat("0a", 32),
	}
	for _, edit := range edits {
		edit(vm)
	}
	require.NoError(c.t, c.Create(c.t.Context(), vm))
	return vm
}

// job creates a SpotInstanceJob that names a SpotInstanceVM and credentials. The test plays its controller.
func (c *cluster) job(name, vm, secret string) *spotv1alpha1.SpotInstanceJob {
	c.t.Helper()
	job := &spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}}
	job.Spec.SpotInstanceVMRef = &spotv1alpha1.SpotInstanceVMReference{Name: vm}
	job.Spec.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: secret}
	job.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "train", Image: "train:1"}},
	}
	require.NoError(c.t, c.Create(c.t.Context(), job))
	return job
}

// pod creates a pod of replica index of a job that needs three cores, for which the scheduler finds no room.
func (c *cluster) pod(vm, job string, index int, edits ...func(*corev1.Pod)) *corev1.Pod {
	c.t.Helper()
	pod := c.newPod(vm, job, index, edits...)
	require.NoError(c.t, c.Create(c.t.Context(), pod))
	next := pod.DeepCopy()
	next.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
	}}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), next, client.MergeFrom(pod)))
	return next
}

// newPod is a pod of replica index of a job that needs three cores, not yet created.
func (c *cluster) newPod(vm, job string, index int, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("%s-%d-", job, index), Namespace: c.namespace}}
	pod.Labels = map[string]string{
		spotv1alpha1.LabelSpotInstanceVM: vm, spotv1alpha1.LabelSpotInstanceJob: job, spotv1alpha1.LabelReplica: fmt.Sprint(index),
	}
	pod.Spec.Containers = []corev1.Container{{
		Name: "train", Image: "train:1",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}},
	}}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// nodes of a SpotInstanceVM.
func (c *cluster) nodes(vm string) []corev1.Node {
	c.t.Helper()
	var nodes corev1.NodeList
	require.NoError(c.t, c.List(c.t.Context(), &nodes, client.MatchingLabels{
		spotv1alpha1.LabelSpotInstanceVM: vm, spotv1alpha1.LabelSpotInstanceVMNamespace: c.namespace,
	}))
	return nodes.Items
}

// tokens are the bootstrap tokens of the cluster's namespace.
func (c *cluster) tokens() []string {
	c.t.Helper()
	var secrets corev1.SecretList
	err := c.List(c.t.Context(), &secrets, client.InNamespace("kube-system"), client.MatchingLabels{
		spotv1alpha1.LabelSpotInstanceVMNamespace: c.namespace,
	})
	require.NoError(c.t, err)
	var names []string
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	return names
}

// now is a SpotInstanceVM as the API server has it; nil when it is gone.
func (c *cluster) now(vm *spotv1alpha1.SpotInstanceVM) *spotv1alpha1.SpotInstanceVM {
	c.t.Helper()
	var is spotv1alpha1.SpotInstanceVM
	err := c.Get(c.t.Context(), client.ObjectKeyFromObject(vm), &is)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(c.t, err)
	return &is
}

// change edits a SpotInstanceVM that a manager may write meanwhile.
func (c *cluster) change(vm *spotv1alpha1.SpotInstanceVM, edit func(*spotv1alpha1.SpotInstanceVM)) {
	c.t.Helper()
	require.NoError(c.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now := c.now(vm)
		edit(now)
		return c.Update(c.t.Context(), now)
	}))
}

// await waits until a SpotInstanceVM is as it should be. Meanwhile pods are scheduled.
func (c *cluster) await(vm *spotv1alpha1.SpotInstanceVM, what string, is func(*spotv1alpha1.SpotInstanceVM) bool) *spotv1alpha1.SpotInstanceVM {
	c.t.Helper()
	var last *spotv1alpha1.SpotInstanceVM
	err := wait.PollUntilContextTimeout(c.t.Context(), glance, patience, true, func(context.Context) (bool, error) {
		c.schedule()
		last = c.now(vm)
		return last != nil && is(last), nil
	})
	if err != nil && last != nil {
		require.NoError(c.t, err, "%s did not happen; instances %+v, conditions %+v, provider %+v",
			what, last.Status.ProvisionedInstances, last.Status.Conditions, c.gce.Instances())
	}
	require.NoError(c.t, err, what)
	return last
}

// agree says whether the status and the provider know the same instances, n of them, all ready.
func (c *cluster) agree(n int) func(*spotv1alpha1.SpotInstanceVM) bool {
	return func(vm *spotv1alpha1.SpotInstanceVM) bool {
		at := c.gce.Instances()
		if len(at) != n || len(vm.Status.ProvisionedInstances) != n || int(vm.Status.ReadyInstances) != n {
			return false
		}
		known := map[string]bool{}
		for _, i := range at {
			known[i.Name] = true
		}
		for _, entry := range vm.Status.ProvisionedInstances {
			if !known[entry.Name] {
				return false
			}
		}
		return true
	}
}
