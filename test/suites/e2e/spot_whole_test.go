//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// spotCloud is a fake Compute Engine with machines, to which the deployed operator is pointed, with a SpotInstanceVM.
type spotCloud struct {
	*machines

	operator *noticed
	ns       string
	vm       *spotv1alpha1.SpotInstanceVM
}

// newSpotCloud starts one for a test that runs alone, because the manager is started again with other flags.
func newSpotCloud(t *testing.T, ns string, images ...string) *spotCloud {
	t.Helper()
	s := &spotCloud{ns: ns}
	s.machines = startCloud(t, fakegce.Options{Latency: fakegce.Latency{
		Accept: 200 * time.Millisecond, Provision: 500 * time.Millisecond, Stage: time.Second, Stop: time.Second, Notice: nodenotice.Grace,
	}}, images...)
	c := spotClient(t)
	builders.AllowSpotInstances(t, c, ns)
	s.operator = &noticed{WithWatch: c, t: t, fake: s.Server}
	s.operator.pointManager("--gcp-endpoint="+s.URL(), "--cloud-list-interval=1s")
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gcp"}, Data: map[string][]byte{"credentials.json": s.CredentialsJSON()},
	}))
	s.vm = &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gpus"}}
	s.vm.Spec.VMImage = "projects/test-project/global/images/family/node"
	s.vm.Spec.MaxInstances = 2
	s.vm.Spec.StartupScript = "#!/bin/bash\necho prepared by the user\n"
	s.vm.Spec.IdleTimeout = &metav1.Duration{Duration: 5 * time.Second}
	s.vm.Spec.GCP.Project, s.vm.Spec.GCP.Zone, s.vm.Spec.GCP.MachineType = s.Project(), joinZone, "n1-standard-4"
	s.vm.Spec.GCP.CredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
	require.NoError(t, c.Create(t.Context(), s.vm))
	t.Cleanup(func() {
		if t.Failed() {
			_ = c.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(s.vm), s.vm)
			t.Logf("the SpotInstanceVM: %+v", s.vm.Status)
			for _, pod := range managerPods(t) {
				t.Logf("the manager: %s", log(context.WithoutCancel(t.Context()), &pod))
			}
		}
		s.operator.remove(s.vm)
	})
	return s
}

// scalesToZero waits until nothing is paid for and no token and no node is left.
func (s *spotCloud) scalesToZero(t *testing.T) {
	t.Helper()
	eventually(t, "there are no instances and no nodes of them", func(ctx context.Context) (bool, error) {
		if err := s.operator.Get(ctx, client.ObjectKeyFromObject(s.vm), s.vm); err != nil {
			return false, err
		}
		var nodes corev1.NodeList
		err := cluster.List(ctx, &nodes, client.MatchingLabels{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: s.ns})
		return len(s.Instances()) == 0 && s.vm.Status.Instances == 0 && len(nodes.Items) == 0, err
	})
	var secrets corev1.SecretList
	require.NoError(t, cluster.List(t.Context(), &secrets, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: s.ns}))
	assert.Empty(t, secrets.Items, "tokens are revoked")
}

// A pod that finds no room leads to an instance, which joins by the real kubeadm and runs it; when the pod is done, the
// instance goes.
func TestAPendingPodGetsAnInstanceThatJoinsAndGoes(t *testing.T) {
	ns := namespace(t)
	s := newSpotCloud(t, ns, managerImage(t))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "waits", Labels: map[string]string{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name}},
		Spec: corev1.PodSpec{
			NodeSelector:    map[string]string{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name},
			RestartPolicy:   corev1.RestartPolicyNever,
			SecurityContext: restrictedPod(),
			Containers:      []corev1.Container{{Name: "main", Image: managerImage(t), Args: []string{"--help"}, SecurityContext: restrictedContainer()}},
		},
	}
	began := time.Now()
	require.NoError(t, cluster.Create(t.Context(), pod))
	eventually(t, "the pod has run", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase == corev1.PodSucceeded, err
	})
	t.Logf("the pod was done %s after it was created, on an instance made for it", time.Since(began).Round(100*time.Millisecond))
	require.Len(t, s.History(), 1)
	assert.Equal(t, s.History()[0].Name, pod.Spec.NodeName)
	assert.Contains(t, s.console(pod.Spec.NodeName), "spot-training-operator: the startup script is done")
	s.scalesToZero(t)
}

// The whole story, with nothing done by hand: a program that keeps its state in memory only runs on an instance made for it.
// The instance is taken back, which the agent on it reads from its metadata server; within the notice the program is
// checkpointed into an image and another instance asked for. That one joins, and the program goes on there from where it
// was to its end. Then nothing is paid for any more.
func TestASpotInstanceJobOutlivesItsInstance(t *testing.T) {
	registry, ns := checkpointAgentIn(t, "/var/lib/kubelet"), rootNamespace(t)
	s := newSpotCloud(t, ns, managerImage(t), workerImage(t))
	job := countingJob(ns, "counts", registry, workerImage(t), 900)
	job.Spec.SpotInstanceVMRef = &spotv1alpha1.SpotInstanceVMReference{Name: s.vm.Name}
	job.Spec.JobTemplate.Spec.Template.Spec.NodeSelector = map[string]string{spotv1alpha1.LabelSpotInstanceVM: s.vm.Name}
	job.Spec.Replicas = ptr.To[int32](1)
	require.NoError(t, s.operator.Create(t.Context(), job))
	t.Cleanup(func() {
		if t.Failed() {
			_ = s.operator.Get(context.WithoutCancel(t.Context()), client.ObjectKeyFromObject(job), job)
			t.Logf("the job: %+v", job.Status)
		}
		s.operator.remove(job)
	})
	first := replicaPod(t, job, anyNode)
	old := first.Spec.NodeName
	name, _, before := counts(t, first, 50)
	eventually(t, "the checkpoint agent runs on the instance", agentRunsOn(agentNamespace, old))
	eventually(t, "the node agent runs on the instance", agentRunsOn(operatorNamespace, old))

	at := time.Now()
	require.NoError(t, s.Preempt(old))
	eventually(t, "the mark is on the node", func(ctx context.Context) (bool, error) {
		var node corev1.Node
		if err := cluster.Get(ctx, client.ObjectKey{Name: old}, &node); err != nil {
			return false, err
		}
		notice, ok := nodenotice.FromNode(&node, time.Now())
		if ok {
			assert.Equal(t, nodenotice.MetadataServer, notice.Source)
			t.Logf("the agent saw the notice %s after it was given", notice.Time.Sub(at).Round(time.Millisecond))
		}
		return ok, nil
	})
	eventually(t, "the replica has a checkpoint", func(ctx context.Context) (bool, error) {
		err := s.operator.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.LastCheckpointImage != "", err
	})
	saved := time.Since(at)
	assert.Less(t, saved, nodenotice.Grace, "it is stored before the instance is gone")
	var second *corev1.Pod
	eventually(t, "the replica runs on another instance", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{spotv1alpha1.LabelSpotInstanceJob: job.Name})
		for i, pod := range pods.Items {
			if pod.Spec.NodeName != "" && pod.Spec.NodeName != old && pod.Status.Phase == corev1.PodRunning {
				second = &pods.Items[i]
			}
		}
		return second != nil, err
	})
	resumed := time.Since(at)
	again, start, _ := counts(t, second, before)
	history := s.History()
	require.Len(t, history, 2)
	t.Logf("from the notice: the next instance was created after %s, the checkpoint stored after %s, the program went on after %s; "+
		"it had counted to %d and goes on from %d", history[1].Created.Sub(at).Round(time.Millisecond), saved.Round(time.Millisecond),
		resumed.Round(time.Millisecond), before, start)
	assert.Less(t, history[1].Created.Sub(at), 10*time.Second, "the next instance is asked for at once")
	assert.Equal(t, name, again, "it is the same process")
	assert.GreaterOrEqual(t, start, before, "nothing is counted twice from before the notice")
	eventually(t, "the job is Succeeded", func(ctx context.Context) (bool, error) {
		err := s.operator.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.Phase == spotv1alpha1.JobSucceeded, err
	})
	assert.Equal(t, int32(1), job.Status.PreemptionCount)
	s.scalesToZero(t)
}
