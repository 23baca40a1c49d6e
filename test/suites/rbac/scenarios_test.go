package rbac_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// scenario is something that the manager does. It has a namespace of its own.
type scenario struct {
	name  string
	drive func(*world)
}

// scenarios are driven side by side.
var scenarios = []scenario{
	{"a job trains to its end", func(w *world) { w.trains("bert") }},
	{"a worker fails and the job starts again", aWorkerFails},
	{"a job is suspended and resumed, twice", suspendAndResume},
	{"a job is rescaled", rescale},
	{"a finished job is cleaned up", cleanUp},
	{"a finished job is deleted after its time to live", timeToLive},
	{"a job is deleted and its checkpoints are used by the next", checkpointsAreKept},
	{"the checkpoints of a job go with it", checkpointsGo},
	{"a job uses claims that exist", namedClaims},
	{"what a user changed is put back", whatIsChangedIsPutBack},
	{"what lost the label of its job is found again", lostLabels},
	{"a Service that cannot be changed is replaced", serviceReplaced},
	{"an object of a job's has another owner", foreignChild},
	{"the workers' Job is deleted and leaves its pods", orphans},
	{"a job is charged for its part of a node", aNodeHasAPrice},
	{"a job resumes from another that does not exist", resumesFromNobody},
	{"a quota stands in the way", quota},
	{"a quota stands in the way of pods", quotaOfPods},
	{"a node is lost", aNodeIsLost},
	{"a worker stays on a dead node and is replaced", aWorkerStays},
	{"instances are created, taken back, replaced and deleted", spotInstances},
	{"instances join with what the manager makes for them", joinsByItself},
	{"instances cannot be logged in to without the key", noKeyToLogIn},
	{"an instance outlives its SpotInstanceVM", orphanedInstance},
	{"a node is taken back by its provider", aNodeGoes},
	{"a replica of a redundant job is preempted", redundantJob},
	{"a Job of a redundant job's has another owner", strangersReplica},
	{"a gang fails, comes back from DeadLetter, and succeeds", aiJob},
	{"the Service of a gang has another owner", strangersMembers},
	{"a workflow is started by events, again and again", aWorkflowIsStarted},
	{"an AIJob of a workflow's has another owner", strangersStage},
	{"a job waits for Kueue", waitsForKueue},
	{"a job waits for its AIJobQueue", waitsForItsQueue},
	{"a queue looks at volumes", volumesInAQueue},
	{"Volcano starts the workers together", func(w *world) { w.gang("volcano") }},
	{"scheduler-plugins start the workers together", func(w *world) { w.gang("scheduler-plugins-scheduler") }},
	{"Kubernetes starts the workers together", func(w *world) { w.gang("") }},
	{"a namespace is deleted under a job", namespaceDeleted},
	{"the samples of all kinds are taken up", samplesAreTakenUp},
	{"a queue's workers come and go", pooledWorkers},
	{"metrics are read", readMetrics},
	{"stored objects are migrated, at the third try", storageMigration},
	{"the webhooks ask the cluster about a job", webhooksAsk},
	{"who may not update finalizers cannot block the deletion of owners", finalizersAreAskedFor},
}

// scenariosAlone change what the others rely on, and are driven one after another when these have ended.
var scenariosAlone = []scenario{
	{"the node agent comes and goes", nodeAgents},
	{"pods are labelled without the admission policy", withoutAdmissionPolicy},
}

func leaderOtherThan(c *cluster, leader string) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) {
		now := c.leader()
		return now != "" && now != leader, nil
	}
}

// samplesAreTakenUp applies the samples of all kinds but TrainingJob.
func samplesAreTakenUp(w *world) {
	files, err := filepath.Glob(root + "/config/samples/*.yaml")
	require.NoError(w.t, err)
	kinds := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(w.t, err)
		for _, object := range installations.Decode(w.t, string(text)) {
			switch object.GroupVersionKind().Group {
			case "training.training.dcnlab.com", "aiplatform.example.com":
			default:
				continue
			}
			object.SetNamespace(w.namespace)
			require.NoError(w.t, w.Create(w.t.Context(), object), file)
			w.await("the condition Ready of "+object.GetKind(), func(ctx context.Context) (bool, error) {
				if err := w.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
					return false, err
				}
				conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
				return len(conditions) > 0, err
			})
			kinds[object.GetKind()] = true
		}
	}
	assert.Len(w.t, kinds, 7, "%v", kinds)
}

// readMetrics asks for the metrics with a token that may, one that may not, and none.
func readMetrics(w *world) {
	w.mayReadMetrics("prometheus")
	assert.Equal(w.t, http.StatusOK, w.metricsAnswer("prometheus"))
	assert.Equal(w.t, http.StatusForbidden, w.metricsAnswer("default"))
	assert.Equal(w.t, http.StatusUnauthorized, w.metricsAnswer(""))
}

// mayReadMetrics binds a new ServiceAccount to the role that is installed for it.
func (w *world) mayReadMetrics(name string) {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	require.NoError(w.t, w.Create(w.t.Context(), account))
	var roles rbacv1.ClusterRoleList
	require.NoError(w.t, w.List(w.t.Context(), &roles))
	for _, role := range roles.Items {
		if strings.Contains(role.Name, "metrics-reader") {
			w.bind(role.Name, name)
			return
		}
	}
	require.Fail(w.t, "no role for reading metrics is installed")
}

// bind gives a ServiceAccount of the namespace a ClusterRole.
func (w *world) bind(role, serviceAccount string) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + serviceAccount}, RoleRef: clusterRole(role),
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: serviceAccount, Namespace: w.namespace}},
	}))
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func (w *world) metricsAnswer(serviceAccount string) int {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.manager.metrics, nil)
	require.NoError(w.t, err)
	if serviceAccount != "" {
		config, err := clientcmd.LoadFromFile(w.kubeconfig(w.namespace, serviceAccount))
		require.NoError(w.t, err)
		request.Header.Set("Authorization", "Bearer "+config.AuthInfos["u"].Token)
	}
	// The manager signs its own certificate when it starts.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	require.NoError(w.t, err)
	require.NoError(w.t, answer.Body.Close())
	return answer.StatusCode
}

// withoutAdmissionPolicy removes the policy, where it is installed, and has the manager label the pods.
func withoutAdmissionPolicy(w *world) {
	require.NoError(w.t, w.DeleteAllOf(w.t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{}))
	w.await("pods without the label", func(ctx context.Context) (bool, error) {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: w.namespace, Labels: map[string]string{
				"training-job": "probe", "batch.kubernetes.io/job-completion-index": "0",
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}
		err := w.Create(ctx, probe, client.DryRunAll)
		return probe.Labels["replica-id"] == "", err
	})
	w.trains("bert")
}

// finalizersAreAskedFor shows the reason of an exception: one who has all that a request of the manager's asks for in the
// audit log, and not trainingjobs/finalizers, is refused.
func finalizersAreAskedFor(w *world) {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-creator"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}},
	}
	require.NoError(w.t, w.Create(w.t.Context(), role))
	w.bind(role.Name, "default")
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + w.namespace + ":default"}
	creator, err := client.New(config, client.Options{Scheme: w.Scheme()})
	require.NoError(w.t, err)
	job := w.submit(builders.TrainingJob("bert").Suspended())
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", Namespace: w.namespace,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, mlv1.GroupVersion.WithKind("TrainingJob"))},
	}}

	require.ErrorContains(w.t, creator.Create(w.t.Context(), owned), "cannot set blockOwnerDeletion")
	owned.OwnerReferences[0].BlockOwnerDeletion = nil
	require.NoError(w.t, creator.Create(w.t.Context(), owned))
}
