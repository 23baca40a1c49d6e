//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	checkpointbackupcrd "github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const (
	noticeZone = "us-central1-a"
	// noticeInstance is what the live node is to the fake Compute Engine.
	noticeInstance = "the-live-node"
)

// noticed is the live node as an instance of a fake Compute Engine, with the operator that looks there.
type noticed struct {
	client.WithWatch

	t    *testing.T
	fake *fakegce.Server
	node *corev1.Node
}

// The operator is told where the fakes are by its flags, so this test runs alone. The node is not really taken away.
func TestANoticeLeadsToACheckpointAndANewInstanceAtOnce(t *testing.T) {
	n := newNoticed(t)
	ns := namespace(t)
	n.checkpointBackups()
	job := n.spotJob(ns)
	n.agentRuns()

	marks, err := n.Watch(t.Context(), &corev1.NodeList{}, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", n.node.Name)})
	require.NoError(t, err)
	backupList := &unstructured.UnstructuredList{}
	backupList.SetAPIVersion("migration.dcnlab.com/v1")
	backupList.SetKind("CheckpointBackupList")
	backups, err := n.Watch(t.Context(), backupList, client.InNamespace(ns))
	require.NoError(t, err)
	marked := first(marks, func(object runtime.Object) bool {
		_, ok := nodenotice.FromNode(object.(*corev1.Node), time.Now())
		return ok
	})
	asked := first(backups, func(runtime.Object) bool { return true })

	n.t.Cleanup(func() {
		_ = nodenotice.Clear(context.WithoutCancel(t.Context()), n.WithWatch, n.node.Name, nodenotice.MetadataServer)
	})
	at := time.Now()
	require.NoError(t, n.fake.Preempt(noticeInstance))

	markedAt, askedAt := await(t, "the mark on the node", marked), await(t, "a CheckpointBackup", asked)
	inserted := n.inserted(at)
	require.NoError(t, n.Get(t.Context(), client.ObjectKeyFromObject(n.node), n.node))
	notice, ok := nodenotice.FromNode(n.node, time.Now())
	require.True(t, ok)
	assert.Equal(t, nodenotice.MetadataServer, notice.Source)
	assert.Contains(t, n.node.Spec.Taints, corev1.Taint{Key: spotv1alpha1.TaintPreemption, Effect: corev1.TaintEffectNoSchedule})

	t.Logf("from the notice on the metadata server: it is seen after %s, the mark is on the Node after %s, the checkpoint is requested after %s, "+
		"the instance after %s", ms(notice.Time.Sub(at)), ms(markedAt.Sub(at)), ms(askedAt.Sub(at)), ms(inserted.Sub(at)))
	// The promise is half a second and a second from the notice being visible to the agent; the limits are for machines that are busy.
	assert.Less(t, askedAt.Sub(notice.Time), 5*time.Second)
	assert.Less(t, inserted.Sub(notice.Time), 5*time.Second)

	n.actedOnce(job, at)
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// first tells when the first event came whose object is meant.
func first(events watch.Interface, meant func(runtime.Object) bool) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			if (event.Type == watch.Added || event.Type == watch.Modified) && meant(event.Object) {
				at <- time.Now()
				return
			}
		}
	}()
	return at
}

func await(t *testing.T, what string, at <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-at:
		return at
	case <-time.After(patience):
		require.FailNow(t, "there was not: "+what)
		return time.Time{}
	}
}

func newNoticed(t *testing.T) *noticed {
	t.Helper()
	n := &noticed{WithWatch: spotClient(t), t: t}
	var nodes corev1.NodeList
	require.NoError(t, n.List(t.Context(), &nodes))
	n.node = &nodes.Items[0]

	address := "" // of the node, which pods can reach
	for _, one := range n.node.Status.Addresses {
		if one.Type == corev1.NodeInternalIP {
			address = one.Address
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Skip("the fakes must be reached from pods, so this test runs on the node itself:", err)
	}
	n.fake = fakegce.Start(t, fakegce.Options{Listen: net.JoinHostPort(address, "0"), Latency: fakegce.RealisticLatency()})
	provider, err := gcp.New(t.Context(), gcp.Options{
		Project: n.fake.Project(), Credentials: n.fake.CredentialsJSON(), Endpoint: n.fake.URL(), UserAgent: "test",
	})
	require.NoError(t, err)
	_, err = provider.Create(t.Context(), cloud.InstanceSpec{
		Name: noticeInstance, Zone: noticeZone, RequestID: "3f0a4f4e-0000-4000-8000-000000000001", MachineType: "n1-standard-4", Spot: true,
		Image: "projects/p/global/images/family/node", DiskGB: 50,
	})
	require.NoError(t, err)
	eventually(t, "the instance runs", func(context.Context) (bool, error) {
		instance, ok := n.fake.Instance(noticeInstance)
		return ok && instance.State == "RUNNING", nil
	})
	server := &http.Server{Handler: n.fake.Metadata(noticeInstance), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	n.pointManager("--gcp-endpoint="+n.fake.URL(), "--node-agent-metadata-url=http://"+listener.Addr().String())
	return n
}

// pointManager runs the manager with more flags until the end of the test.
func (n *noticed) pointManager(flags ...string) {
	n.t.Helper()
	var args []string
	n.changeManager(n.t.Context(), func(c *corev1.Container) {
		args = slices.Clone(c.Args)
		c.Args = append(c.Args, flags...)
	})
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
		defer cancel()
		n.changeManager(ctx, func(c *corev1.Container) { c.Args = args })
	})
}

func (n *noticed) changeManager(ctx context.Context, change func(*corev1.Container)) {
	n.t.Helper()
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: operatorNamespace, Name: "spot-training-operator-controller-manager"}
	require.NoError(n.t, n.Get(ctx, key, &deployment))
	before := deployment.DeepCopy()
	change(&deployment.Spec.Template.Spec.Containers[0])
	require.NoError(n.t, n.Patch(ctx, &deployment, client.MergeFrom(before)))
	require.Eventually(n.t, func() bool {
		err := n.Get(ctx, key, &deployment)
		is := deployment.Status
		return err == nil && is.ObservedGeneration == deployment.Generation && is.UpdatedReplicas == 1 && is.AvailableReplicas == 1 && is.Replicas == 1
	}, patience, poll, "the manager runs with other flags")
}

// checkpointBackups are served until the end of the test, if they were not before. Nothing takes them here.
func (n *noticed) checkpointBackups() {
	n.t.Helper()
	crd, err := checkpointbackupcrd.CRD()
	require.NoError(n.t, err)
	if err := n.Create(n.t.Context(), crd); !apierrors.IsAlreadyExists(err) {
		require.NoError(n.t, err)
		n.t.Cleanup(func() { _ = n.Delete(context.WithoutCancel(n.t.Context()), crd) })
	}
	eventually(n.t, "CheckpointBackups are served", func(ctx context.Context) (bool, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(checkpointbackup.Object("v1").GroupVersionKind())
		return n.List(ctx, list) == nil, nil
	})
}

// spotJob runs one replica, which may have an instance when its node goes.
func (n *noticed) spotJob(ns string) *spotv1alpha1.SpotInstanceJob {
	n.t.Helper()
	ctx := n.t.Context()
	builders.AllowSpotInstances(n.t, n, ns)
	require.NoError(n.t, n.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gcp"}, Data: map[string][]byte{"credentials.json": n.fake.CredentialsJSON()},
	}))
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "spare"}}
	vm.Spec.VMImage = "projects/debian-cloud/global/images/family/debian-12"
	vm.Spec.MaxInstances = 1
	vm.Spec.GCP.Project, vm.Spec.GCP.Zone, vm.Spec.GCP.MachineType = n.fake.Project(), noticeZone, "n1-standard-4"
	vm.Spec.GCP.CredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
	require.NoError(n.t, n.Create(ctx, vm))

	job := &spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "noticed"}}
	job.Spec.Replicas = ptr.To[int32](1)
	job.Spec.SpotInstanceVMRef = &spotv1alpha1.SpotInstanceVMReference{Name: vm.Name}
	job.Spec.CheckpointConfig = &spotv1alpha1.CheckpointConfig{
		CheckpointImageRepo: "registry.example.com/checkpoints", CheckpointInterval: metav1.Duration{Duration: time.Hour},
	}
	job.Spec.JobTemplate.Spec = batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, SecurityContext: restrictedPod(), TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{
			Name: "train", Image: workerImage(n.t), Command: []string{"python3", "-c", "import time; time.sleep(3600)"},
			SecurityContext: restrictedContainer(),
			Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
		}},
	}}}
	require.NoError(n.t, n.Create(ctx, job))
	n.t.Cleanup(func() { n.remove(job, vm) })
	eventually(n.t, "the replica runs, and checkpoints can be asked for", func(ctx context.Context) (bool, error) {
		if err := n.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return false, err
		}
		agent := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionCheckpointAgentAvailable)
		return job.Status.ActiveReplicas == 1 && agent != nil && agent.Reason == reasons.NoCheckpointYet, nil
	})
	return job
}

// remove the objects while the fake answers: no instance may stay, and the agents go with the last SpotInstanceVM.
func (n *noticed) remove(objects ...client.Object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
	defer cancel()
	for _, object := range objects {
		assert.NoError(n.t, client.IgnoreNotFound(n.Delete(ctx, object)))
	}
	assert.Eventually(n.t, func() bool {
		for _, object := range objects {
			if err := n.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				return false
			}
		}
		return true
	}, patience, poll, "the objects are gone")
	for _, instance := range n.fake.Instances() {
		assert.Equal(n.t, noticeInstance, instance.Name, "an instance is left")
	}
}

// agentRuns waits for the agent on the live node, which passes for a spot node until the end of the test.
func (n *noticed) agentRuns() {
	n.t.Helper()
	const label = "cloud.google.com/gke-provisioning"
	set := func(ctx context.Context, value any) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, label, value)
		return n.Patch(ctx, n.node, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	require.NoError(n.t, set(n.t.Context(), `"spot"`))
	n.t.Cleanup(func() { _ = set(context.WithoutCancel(n.t.Context()), "null") })
	eventually(n.t, "the node agent is ready", func(ctx context.Context) (bool, error) {
		var agents appsv1.DaemonSet
		err := n.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "spot-training-operator-node-agent"}, &agents)
		is := agents.Status
		return err == nil && is.ObservedGeneration == agents.Generation && is.DesiredNumberScheduled == 1 && is.UpdatedNumberScheduled == 1 &&
			is.NumberAvailable == 1, client.IgnoreNotFound(err)
	})
}

// inserted is when the fake got the request for the instance in the place of the one that goes, after the notice.
func (n *noticed) inserted(notice time.Time) (at time.Time) {
	n.t.Helper()
	eventually(n.t, "an instance is asked for", func(context.Context) (bool, error) {
		for _, request := range n.fake.Requests() {
			if request.Method == "compute.instances.insert" && request.Time.After(notice) {
				at = request.Time
				return true, nil
			}
		}
		return false, nil
	})
	return at
}

// actedOnce checks that the notice led to one checkpoint and one instance.
func (n *noticed) actedOnce(job *spotv1alpha1.SpotInstanceJob, notice time.Time) {
	n.t.Helper()
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(checkpointbackup.Object("v1").GroupVersionKind())
	require.NoError(n.t, n.List(n.t.Context(), &all, client.InNamespace(job.Namespace)))
	assert.Len(n.t, all.Items, 1, "one checkpoint for one notice")
	inserts := 0
	for _, request := range n.fake.Requests() {
		if request.Method == "compute.instances.insert" && request.Time.After(notice) {
			inserts++
		}
	}
	assert.Equal(n.t, 1, inserts, "one instance for one notice")
}
