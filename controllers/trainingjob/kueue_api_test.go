//go:build kueue

package trainingjob

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/fakes/gangs"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// kueueFlavor is what Kueue gives a job: a place for its pods.
const kueueFlavor = `
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: spot}, spec: {
    nodeLabels: {pool: spot}, tolerations: [{key: spot, operator: Exists}]}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: all}, spec: {namespaceSelector: {}, resourceGroups: [
    {coveredResources: [cpu, memory], flavors: [{name: spot, resources: [{name: cpu, nominalQuota: "4"}, {name: memory, nominalQuota: 4Gi}]}]}]}}
- {apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: team-a, namespace: NAMESPACE}, spec: {clusterQueue: all}}`

// Kueue itself, as it is released, admits a job, takes its resources back and gives them again.
func TestAPIKueueAdmitsEvictsAndAdmitsAgain(t *testing.T) {
	c := newQueueingCluster(t)
	m := c.start(nil)
	c.startKueue()
	job := c.submit(builders.TrainingJob("bert").Workers(2).BackoffLimit(0).Labels(map[string]string{build.KueueQueueLabel: "team-a"}).
		Spec(func(spec *mlv1.TrainingJobSpec) {
			spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
		}))
	job = c.await(job, "waiting for Kueue", func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.Queued })
	assert.Equal(t, mlv1.StatePending, job.Status.State)

	c.createAllOf(kueueFlavor)
	admitted := c.awaitSuspension(job, false)
	c.jobController(admitted, false)
	c.await(job, "admitted", state(mlv1.StateInitializing))
	assert.Equal(t, map[string]string{"pool": "spot"}, admitted.Spec.Template.Spec.NodeSelector, "Kueue says where the pods go")
	first := c.startPods(admitted)
	c.run(first...)
	job = c.await(job, "running", state(mlv1.StateRunning))
	m.lookAgain(job, 2)
	assert.Equal(t, map[string]string{"pool": "spot"}, c.workers(job, 0).Spec.Template.Spec.NodeSelector, "and the operator leaves it so")

	c.setActive(false)
	evicted := c.awaitSuspension(job, true)
	for _, pod := range first {
		require.NoError(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	c.jobController(evicted, true)
	job = c.await(job, "suspended", state(mlv1.StateSuspended))
	assert.Equal(t, reasons.EvictedByQueue, job.Status.Reason)

	c.setActive(true)
	again := c.awaitSuspension(job, false)
	assert.Equal(t, admitted.UID, again.UID, "it is the same Job, which keeps its place")
	c.jobController(again, false)
	second := c.startPods(again)
	c.run(second...)
	job = c.await(job, "running again", state(mlv1.StateRunning))
	assert.Zero(t, job.Status.RestartCount)
	assert.Empty(t, job.Status.FailureReason)
	c.end(0, "", second...)
	c.await(job, "completed", state(mlv1.StateCompleted))
}

// A job that waits is corrected. Where its pods may go is changed in the Job that waits, which keeps its Workload; all else needs another Job.
func TestAPIKueueHoldsAJobThatIsEdited(t *testing.T) {
	c := newQueueingCluster(t)
	c.start(nil)
	c.startKueue()
	job := c.submit(builders.TrainingJob("bert").Workers(2).Labels(map[string]string{build.KueueQueueLabel: "team-a"}).
		Spec(func(spec *mlv1.TrainingJobSpec) {
			spec.Image, spec.Scheduling = "program:v1", &mlv1.Scheduling{NodeSelector: map[string]string{"zone": "a"}}
			spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
		}))
	edit := func(change func(*mlv1.TrainingJobSpec)) {
		t.Helper()
		next := job.DeepCopy()
		change(&next.Spec)
		require.NoError(t, c.Patch(t.Context(), next, client.MergeFrom(job)))
		job = next
	}
	// It waits for a queue that is not there yet.
	job = c.await(job, "waiting for Kueue", func(job *mlv1.TrainingJob) bool {
		return job.Status.Reason == reasons.Queued && job.Status.StartCount == 1
	})
	first, held := c.awaitWorkload(func(*unstructured.Unstructured) bool { return true }), c.awaitSuspension(job, true)
	assert.Equal(t, map[string]any{"zone": "a"}, selectorOf(first))

	edit(func(spec *mlv1.TrainingJobSpec) { spec.Scheduling.NodeSelector = map[string]string{"zone": "b"} })
	same := c.awaitWorkload(func(w *unstructured.Unstructured) bool { return selectorOf(w)["zone"] == "b" })
	assert.Equal(t, first.GetUID(), same.GetUID(), "it keeps its place")
	amended := c.awaitSuspension(job, true)
	assert.Equal(t, held.UID, amended.UID)
	assert.True(t, build.IsOf(amended, job))

	// The API server of these tests allows that of a suspended Job; one that does not would have it replaced.
	edit(func(spec *mlv1.TrainingJobSpec) {
		spec.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("2Gi")
	})
	eventually(t, "the resources", func() bool {
		now := c.awaitSuspension(job, true)
		return now.UID == held.UID && now.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String() == "2Gi"
	})

	edit(func(spec *mlv1.TrainingJobSpec) { spec.Image = "program:v2" })
	job = c.await(job, "waiting again", func(now *mlv1.TrainingJob) bool {
		return now.Status.Reason == reasons.Queued && now.Status.ObservedGeneration == job.Generation && now.Status.StartCount == 2
	})
	c.collectGarbage()
	second := c.awaitWorkload(func(w *unstructured.Unstructured) bool { return w.GetUID() != first.GetUID() })
	assert.NotEqual(t, first.GetUID(), second.GetUID())
	var told eventsv1.EventList
	eventually(t, "the event", func() bool {
		require.NoError(t, c.List(t.Context(), &told, client.InNamespace(c.namespace)))
		return slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool {
			return e.Reason == reasons.RequeuedAfterEdit &&
				e.Note == "spec.image changed: another Job is made, which waits in LocalQueue team-a as a new one"
		})
	})

	c.createAllOf(kueueFlavor)
	admitted := c.awaitSuspension(job, false)
	c.jobController(admitted, false)
	assert.Equal(t, map[string]string{"pool": "spot", "zone": "b"}, admitted.Spec.Template.Spec.NodeSelector)
	assert.Equal(t, "program:v2", admitted.Spec.Template.Spec.Containers[0].Image)
	pods := c.startPods(admitted)
	c.run(pods...)
	job = c.await(job, "running", state(mlv1.StateRunning))

	// After an eviction, too.
	c.setActive(false)
	evicted := c.awaitSuspension(job, true)
	for _, pod := range pods {
		require.NoError(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	c.jobController(evicted, true)
	job = c.await(job, "suspended", state(mlv1.StateSuspended))
	edit(func(spec *mlv1.TrainingJobSpec) { spec.Scheduling.NodeSelector = map[string]string{"zone": "c"} })
	c.awaitWorkload(func(w *unstructured.Unstructured) bool {
		return selectorOf(w)["zone"] == "c" && w.GetUID() == second.GetUID()
	})
	c.setActive(true)
	again := c.awaitSuspension(job, false)
	assert.Equal(t, admitted.UID, again.UID)
	assert.Equal(t, map[string]string{"pool": "spot", "zone": "c"}, again.Spec.Template.Spec.NodeSelector)
	c.jobController(again, false)
	c.run(c.startPods(again)...)
	job = c.await(job, "running again", state(mlv1.StateRunning))
	assert.Zero(t, job.Status.RestartCount)
}

// selectorOf is the node selector of a Workload.
func selectorOf(workload *unstructured.Unstructured) map[string]any {
	sets, _, _ := unstructured.NestedSlice(workload.Object, "spec", "podSets")
	selector, _, _ := unstructured.NestedMap(sets[0].(map[string]any), "template", "spec", "nodeSelector")
	return selector
}

// newQueueingCluster is a namespace of an API server of its own, which has Kueue's kinds.
func newQueueingCluster(t *testing.T) *cluster {
	t.Helper()
	kinds, err := gangs.Kueue(filepath.Join("..", ".."))
	require.NoError(t, err)
	server := apiserver.Start(t, apiserver.OwnCRDs)
	config := server.Config(t)
	// Kueue's older version of its kinds needs its conversion webhook. Nothing here asks for it, but Kueue waits until it
	// could be asked.
	install := envtest.CRDInstallOptions{Paths: []string{kinds}, MaxTime: patience}
	require.NoError(t, envtest.ReadCRDFiles(&install))
	for _, crd := range install.CRDs {
		versions := crd.Spec.Versions[:0]
		newest := crd.Spec.Versions[len(crd.Spec.Versions)-1].Name
		for _, version := range crd.Spec.Versions {
			if version.Name == newest {
				version.Served, version.Storage = true, true
				versions = append(versions, version)
			}
		}
		crd.Spec.Versions = versions
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{
					Service: &apiextensionsv1.ServiceReference{Namespace: "kueue-system", Name: "kueue-webhook-service", Path: ptr.To("/convert")},
				},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: install.CRDs, MaxTime: patience})
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, name := range []string{"queued", "kueue-system"} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	require.NoError(t, os.WriteFile(filepath.Join(kueueFolder(t), "kubeconfig"), server.Kubeconfig(), 0o600))
	return &cluster{Client: c, t: t, config: config, namespace: "queued"}
}

// kueueFolders are where the Kueue of a test has its files.
var kueueFolders = map[string]string{}

func kueueFolder(t *testing.T) string {
	if kueueFolders[t.Name()] == "" {
		kueueFolders[t.Name()] = t.TempDir()
	}
	return kueueFolders[t.Name()]
}

const kueueConfiguration = `
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: kueue-system
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
leaderElection: {leaderElect: false}
internalCertManagement: {enable: true}
manageJobsWithoutQueueName: false
integrations: {frameworks: [batch/job]}
`

// startKueue starts Kueue's manager, and stops it at the end of the test.
func (c *cluster) startKueue() {
	c.t.Helper()
	program := os.Getenv("KUEUE")
	if program == "" {
		program = filepath.Join("..", "..", ".bin", "kueue")
	}
	_, err := os.Stat(program)
	require.NoError(c.t, err, "this test needs Kueue's manager: run `make kueue`, which builds it, or name the program in KUEUE")
	folder := kueueFolder(c.t)
	certificates := filepath.Join(folder, "certificates")
	require.NoError(c.t, os.Mkdir(certificates, 0o700))
	configuration := filepath.Join(folder, "kueue.yaml")
	require.NoError(c.t, os.WriteFile(configuration, fmt.Appendf(nil, kueueConfiguration, freePort(c.t), freePort(c.t), certificates), 0o600))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "kueue-webhook-server-cert"}}
	require.NoError(c.t, c.Create(c.t.Context(), secret))

	output, err := os.Create(filepath.Join(folder, "kueue.log"))
	require.NoError(c.t, err)
	// Its server of queue lengths would write to a fixed folder.
	command := exec.Command(program, "--config="+configuration, "--kubeconfig="+filepath.Join(folder, "kubeconfig"),
		"--feature-gates=VisibilityOnDemand=false")
	command.Stdout, command.Stderr = output, output
	require.NoError(c.t, command.Start())
	c.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if c.t.Failed() {
			text, _ := os.ReadFile(output.Name())
			c.t.Logf("Kueue says:\n%s", text[max(0, len(text)-60000):])
		}
	})
	// In a pod the certificates that Kueue makes are mounted from their Secret.
	eventually(c.t, "Kueue's certificates", func() bool {
		err := c.Get(c.t.Context(), client.ObjectKeyFromObject(secret), secret)
		return err == nil && len(secret.Data["tls.crt"]) > 0
	})
	for name, content := range secret.Data {
		require.NoError(c.t, os.WriteFile(filepath.Join(certificates, name), content, 0o600))
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// decodeList reads the objects of a YAML list.
func decodeList(t *testing.T, list, namespace string) (objects []*unstructured.Unstructured) {
	t.Helper()
	var all []map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(list, "NAMESPACE", namespace)), &all))
	for _, content := range all {
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects
}

// createAllOf creates the objects of a YAML list.
func (c *cluster) createAllOf(list string) {
	c.t.Helper()
	for _, object := range decodeList(c.t, list, c.namespace) {
		require.NoError(c.t, c.Create(c.t.Context(), object))
	}
}

// awaitSuspension waits until Kueue lets the Job of a job run, or no longer does.
func (c *cluster) awaitSuspension(job *mlv1.TrainingJob, suspended bool) *batchv1.Job {
	c.t.Helper()
	var workers batchv1.Job
	eventually(c.t, fmt.Sprintf("the Job with suspend %v", suspended), func() bool {
		err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: build.WorkersName(job)}, &workers)
		return err == nil && ptr.Deref(workers.Spec.Suspend, false) == suspended
	})
	return &workers
}

// jobController says of a Job what the Job controller says once it has stopped its pods, or is to start them.
func (c *cluster) jobController(workers *batchv1.Job, suspended bool) {
	c.t.Helper()
	status, reason := corev1.ConditionFalse, "JobResumed"
	if suspended {
		status, reason = corev1.ConditionTrue, "JobSuspended"
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(c.t.Context(), client.ObjectKeyFromObject(workers), workers); err != nil {
			return err
		}
		workers.Status.Active, workers.Status.StartTime = *workers.Spec.Parallelism, ptr.To(metav1.Now())
		if suspended {
			workers.Status.Active, workers.Status.StartTime = 0, nil
		}
		workers.Status.Conditions = []batchv1.JobCondition{{
			Type: batchv1.JobSuspended, Status: status, Reason: reason, LastTransitionTime: metav1.Now(), LastProbeTime: metav1.Now(),
		}}
		return c.Status().Update(c.t.Context(), workers)
	})
	require.NoError(c.t, err)
}

// setActive has Kueue take the resources of the only Workload back, or give them again.
func (c *cluster) setActive(active bool) {
	c.t.Helper()
	workload := c.awaitWorkload(func(*unstructured.Unstructured) bool { return true })
	before := workload.DeepCopy()
	require.NoError(c.t, unstructured.SetNestedField(workload.Object, active, "spec", "active"))
	require.NoError(c.t, c.Patch(context.WithoutCancel(c.t.Context()), workload, client.MergeFrom(before)))
}

// awaitWorkload waits until there is one Workload, and it is as it should be. The test plays the garbage collector.
func (c *cluster) awaitWorkload(is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	c.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("kueue.x-k8s.io/v1beta2")
	list.SetKind("WorkloadList")
	eventually(c.t, "the Workload", func() bool {
		require.NoError(c.t, c.List(c.t.Context(), list, client.InNamespace(c.namespace)))
		for i := range list.Items {
			var owner batchv1.Job
			of := metav1.GetControllerOf(&list.Items[i])
			err := c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: of.Name}, &owner)
			if client.IgnoreNotFound(err) == nil && owner.UID != of.UID {
				require.NoError(c.t, client.IgnoreNotFound(c.Delete(c.t.Context(), &list.Items[i])))
			}
		}
		return len(list.Items) == 1 && is(&list.Items[0])
	})
	return &list.Items[0]
}
