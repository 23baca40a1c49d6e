package notice_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// seedPoll is the interval at which the operator of the seed asks for the state of its instances.
const seedPoll = 30 * time.Second

func TestANoticeLeadsToACheckpointAndANewInstanceAtOnce(t *testing.T) {
	w := newWorld(t)
	node := w.node()
	probes := freeAddress(t)
	w.start("http://"+probes+"/readyz", nil, "manager", "--gcp-endpoint="+w.fake.URL(), "--metrics-bind-address=0",
		"--health-probe-bind-address="+probes, "--namespace=default")
	agentProbes := freeAddress(t)
	w.start("http://"+agentProbes+"/healthz", []string{"NODE_NAME=" + machine}, "node-agent", "--metadata-url="+w.metadata,
		"--health-probe-bind-address="+agentProbes)
	job := w.job()

	marks, err := w.Watch(t.Context(), &corev1.NodeList{})
	require.NoError(t, err)
	marked := first(marks, func(object runtime.Object) bool {
		_, ok := nodenotice.FromNode(object.(*corev1.Node), time.Now())
		return ok
	})
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("migration.dcnlab.com/v1")
	list.SetKind("CheckpointBackupList")
	backups, err := w.Watch(t.Context(), list)
	require.NoError(t, err)
	asked := first(backups, func(runtime.Object) bool { return true })
	// As the seed does it, beside: the notice falls into the middle of an interval.
	seed := w.pollAsTheSeed()
	time.Sleep(seedPoll / 2)

	at := time.Now()
	require.NoError(t, w.fake.Preempt(machine))
	markedAt, askedAt, inserted := next(t, "a mark on the node", marked), next(t, "a CheckpointBackup", asked), w.inserted(at)
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	notice, ok := nodenotice.FromNode(node, time.Now())
	require.True(t, ok)
	assert.Equal(t, nodenotice.MetadataServer, notice.Source)
	seedAt := next(t, "a poll that sees it", seed)

	t.Logf("from the notice on the metadata server:\n"+
		"| until | node agent | polling every %s |\n|---|---:|---:|\n"+
		"| it is seen | %s | %s |\n| the mark is on the Node | %s | |\n"+
		"| the checkpoint is requested | %s | not before %[3]s |\n| the instance is requested | %[6]s | not before %[3]s |",
		seedPoll, ms(notice.Time.Sub(at)), ms(seedAt.Sub(at)), ms(markedAt.Sub(at)), ms(askedAt.Sub(at)), ms(inserted.Sub(at)))
	// Half a second and a second are promised; the limits are for machines that are busy.
	assert.Less(t, askedAt.Sub(notice.Time), 5*time.Second)
	assert.Less(t, inserted.Sub(notice.Time), 5*time.Second)
	assert.Greater(t, seedAt.Sub(at), 5*time.Second)

	require.NoError(t, w.List(t.Context(), list, client.InNamespace(job.Namespace)))
	assert.Len(t, list.Items, 1, "one checkpoint for one notice")
}

// job runs one replica on the node, which may have an instance when its node goes.
func (w *world) job() *spotv1alpha1.SpotInstanceJob {
	w.t.Helper()
	const namespace = "default"
	builders.AllowSpotInstances(w.t, w, namespace)
	for name, data := range map[string]map[string][]byte{
		"gcp": {"credentials.json": w.fake.CredentialsJSON()},
		"join": {
			"token": []byte("abcdef.0123456789abcdef"), "ca-cert-hash": []byte("sha256:" + strings.Repeat("0", 64)),
			"control-plane-endpoint": []byte("10.0.0.1:6443"),
		},
	} {
		require.NoError(w.t, w.Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}))
	}
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "spare"}}
	vm.Spec.VMImage, vm.Spec.MaxInstances = "projects/debian-cloud/global/images/family/debian-12", 1
	vm.Spec.GCP.Project, vm.Spec.GCP.Zone, vm.Spec.GCP.MachineType = w.fake.Project(), zone, "n1-standard-4"
	vm.Spec.GCP.CredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
	vm.Spec.KubeadmJoinConfig.TokenSecretRef = "join"
	require.NoError(w.t, w.Create(w.t.Context(), vm))

	job := &spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "noticed"}}
	job.Spec.Replicas = ptr.To[int32](1)
	job.Spec.SpotInstanceVMRef = &spotv1alpha1.SpotInstanceVMReference{Name: vm.Name}
	job.Spec.CheckpointConfig = &spotv1alpha1.CheckpointConfig{
		CheckpointImageRepo: "registry.example.com/checkpoints", CheckpointInterval: metav1.Duration{Duration: time.Hour},
	}
	job.Spec.JobTemplate.Spec = batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "train", Image: "train:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}},
	}}}
	require.NoError(w.t, w.Create(w.t.Context(), job))
	w.runPod()
	w.await("the replica to run, and checkpoints to be possible", func(ctx context.Context) bool {
		if err := w.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return false
		}
		agent := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionCheckpointAgentAvailable)
		return job.Status.ActiveReplicas == 1 && agent != nil && agent.Reason == reasons.NoCheckpointYet
	})
	return job
}

// runPod plays the Job controller, the scheduler and the kubelet.
func (w *world) runPod() {
	w.t.Helper()
	var jobs batchv1.JobList
	w.await("the Job of the replica", func(ctx context.Context) bool { return w.List(ctx, &jobs) == nil && len(jobs.Items) == 1 })
	job := &jobs.Items[0]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-abcde", Labels: job.Spec.Template.Labels, Annotations: job.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec: job.Spec.Template.Spec,
	}
	pod.Spec.NodeName = machine
	require.NoError(w.t, w.Create(w.t.Context(), pod))
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Now()), PodIP: "10.1.0.1", PodIPs: []corev1.PodIP{{IP: "10.1.0.1"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "train", Image: "train:1", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}},
	}
	require.NoError(w.t, w.Status().Update(w.t.Context(), pod))
	before := job.DeepCopy()
	job.Status.Active, job.Status.Ready, job.Status.StartTime = 1, ptr.To[int32](1), ptr.To(metav1.Now())
	require.NoError(w.t, w.Status().Patch(w.t.Context(), job, client.MergeFrom(before)))
}

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

func next(t *testing.T, what string, at <-chan time.Time) time.Time {
	t.Helper()
	select {
	case at := <-at:
		return at
	case <-time.After(patience):
		require.FailNow(t, "there was not: "+what)
		return time.Time{}
	}
}

// pollAsTheSeed asks for the state of the instance as the seed's operator does, and tells when it is no longer RUNNING.
func (w *world) pollAsTheSeed() <-chan time.Time {
	at := make(chan time.Time, 1)
	ctx := w.t.Context()
	go func() {
		ticker := time.NewTicker(seedPoll)
		defer ticker.Stop()
		for {
			if instance, err := w.provider.Get(ctx, zone, machine); err == nil && instance.State != "RUNNING" {
				at <- time.Now()
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return at
}

// inserted is when the fake got the request for the instance in the place of the one that goes, after the notice.
func (w *world) inserted(notice time.Time) (at time.Time) {
	w.t.Helper()
	w.await("an instance to be asked for", func(context.Context) bool {
		for _, request := range w.fake.Requests() {
			if request.Method == "compute.instances.insert" && request.Time.After(notice) {
				at = request.Time
				return true
			}
		}
		return false
	})
	return at
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
