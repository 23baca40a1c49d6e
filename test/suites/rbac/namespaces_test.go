package rbac_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// servedScenarios are driven by a manager that is limited to namespaces: few, and all that it may do is in one of them.
var servedScenarios = []scenario{
	{"a job trains to its end", func(w *world) { w.trains("bert") }},
	{"a job is suspended and resumed, twice", suspendAndResume},
	{"a finished job is cleaned up", cleanUp},
	{"a finished job is deleted after its time to live", timeToLive},
	{"a job uses claims that exist", namedClaims},
	{"what a user changed is put back", whatIsChangedIsPutBack},
	{"what lost the label of its job is found again", lostLabels},
	{"a Service that cannot be changed is replaced", serviceReplaced},
	{"a job is charged for its part of a node", aNodeHasAPrice},
	{"a quota stands in the way of pods", quotaOfPods},
	{"a node is lost", aNodeIsLost},
	{"a worker stays on a dead node and is replaced", aWorkerStays},
	{"a node is taken back by its provider", aNodeGoes},
	{"a replica of a redundant job is preempted", redundantJob},
	{"a queue looks at volumes", volumesInAQueue},
	{"Volcano starts the workers together", func(w *world) { w.gang("volcano") }},
	{"scheduler-plugins start the workers together", func(w *world) { w.gang("scheduler-plugins-scheduler") }},
	{"Kubernetes starts the workers together", func(w *world) { w.gang("") }},
	{"metrics are read", readMetrics},
	{"what takes an operator of the whole cluster says so", unservedKinds},
	{"a job in an AIJobQueue says that none is served", unservedQueue},
}

// servedExceptions are granted to such a manager, and may be used by the scenarios or not.
var servedExceptions = []exception{{
	access: access{group: "events.k8s.io", resource: "events", verb: "patch"}, shared: "spot-training-operator-namespaced-manager-rolebinding",
	reason: "an event that comes again for the same version of an object, as for two replicas at once, is written as a series",
}}

// fromChart is a release of the chart in a namespace of its own, which serves some namespaces.
func fromChart(t *testing.T, namespace string, served []string, values ...string) *installations.Installation {
	t.Helper()
	i := installations.Chart(t, namespace, append([]string{"--set=namespaces={" + strings.Join(served, ",") + "}"}, values...)...)
	i.Served = served
	return i
}

// managersOfNamespaces runs two managers side by side on one API server. The first does all that it can; the second has a namespace where it does
// some of it. Neither is refused anything, has a right that it does not use, or asks for anything in a namespace of the other, or in a third one.
func managersOfNamespaces(t *testing.T, program, counters string) {
	var served []string
	for n := range servedScenarios {
		served = append(served, fmt.Sprintf("team-%02d", n))
	}
	first := fromChart(t, "training-a", served)
	second := fromChart(t, "training-b", []string{"neighbour"}, "--set=crds.install=false,rbac.userRoles=false")
	c := startCluster(t, first, second)
	// It reads lists, as it must from an API server that does not stream them (before Kubernetes 1.34).
	m := c.startManager(program, "manager", counters, "KUBE_FEATURE_WatchListClient=false")
	neighbour := c.of(second)
	other := neighbour.startManager(program, "neighbour", counters)
	for _, one := range []*cluster{c, neighbour} {
		one.await("a leader", leaderOtherThan(one, ""))
	}
	stranger := c.newNamespace()
	ignored := (&world{cluster: c, namespace: stranger}).submit(builders.TrainingJob("bert").Workers(2))

	t.Run("scenarios", func(t *testing.T) {
		for n, scenario := range servedScenarios {
			t.Run(scenario.name, func(t *testing.T) {
				t.Parallel()
				w := &world{cluster: c.in(t), manager: m, namespace: served[n]}
				w.awaitAccount(w.namespace)
				scenario.drive(w)
			})
		}
		t.Run("a job of the neighbour trains to its end", func(t *testing.T) {
			t.Parallel()
			w := &world{cluster: neighbour.in(t), manager: other, namespace: "neighbour"}
			w.awaitAccount(w.namespace)
			w.trains("bert")
		})
	})
	m.end()
	other.end()

	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(ignored), ignored))
	assert.Empty(t, ignored.Status.Conditions, "the namespace of the job is served by neither")
	for _, of := range []*cluster{c, neighbour} {
		requests, denied := requestsOf(t, c.auditLog(), of.installation.User())
		assert.Empty(t, denied, "refused to the manager in %s", of.installation.Namespace)
		require.NotEmpty(t, requests)
		// The API server looks for the ServiceAccount of a token in its namespace.
		own := append([]string{"", of.installation.Namespace}, of.installation.Served...)
		for asked := range requests {
			assert.Contains(t, own, asked.namespace, "the manager in %s asked for %s", of.installation.Namespace, asked.access)
		}
		if of == c {
			grants, merged := mergeServed(of.grants(), requests)
			result := compare(grants, merged, grantedOf(append(servedExceptions, exceptions...), grants), of.installation.Namespace)
			t.Logf("what is granted, and how often it was used:\n%s", result.table)
			for _, finding := range result.findings {
				assert.Fail(t, finding)
			}
		}
		readsTheCluster(t, of)
	}
}

// bundleOfOneNamespace runs the manager as OLM does in the modes other than AllNamespaces. The job service is installed there too: OLM waits for
// its pods, and these for the certificate.
func bundleOfOneNamespace(t *testing.T, program, counters string) {
	i := installations.Bundle(t, "team")
	c := startCluster(t, i)
	m := c.startManager(program, "manager", counters)
	w := &world{cluster: c, manager: m, namespace: "team"}
	w.awaitAccount(w.namespace)
	for name, object := range map[string]client.Object{
		installations.JobService + "-certificate": &corev1.Secret{}, installations.JobService + "-ca": &corev1.ConfigMap{},
	} {
		w.await("the "+name, func(ctx context.Context) (bool, error) {
			err := w.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: name}, object)
			return err == nil, client.IgnoreNotFound(err)
		})
	}
	w.trains("bert")

	w.spoilCertificates()
	next := *c
	next.webhooks = installations.NewWebhooks(t, t.TempDir())
	other := next.startManager(program, "next-manager", counters)
	m.end()
	w.awaitCertificates()
	other.end()
	_, denied := requestsOf(t, c.auditLog(), i.User())
	assert.Empty(t, denied, "refused to the manager")
}

// readsTheCluster checks that all that a manager may do everywhere is to read what belongs to no namespace, and to ask who a client is that
// wants its metrics.
func readsTheCluster(t *testing.T, c *cluster) {
	t.Helper()
	everywhere := map[string][]string{}
	for _, g := range c.grants() {
		if g.namespace == "" {
			everywhere[g.resource] = append(everywhere[g.resource], g.verb)
		} else {
			assert.Contains(t, append([]string{c.installation.Namespace}, c.installation.Served...), g.namespace, "%s", g.access)
		}
	}
	for _, verbs := range everywhere {
		slices.Sort(verbs)
	}
	assert.Equal(t, map[string][]string{
		"nodes": {"get", "list", "watch"}, "persistentvolumes": {"get"}, "storageclasses": {"get"},
		"tokenreviews": {"create"}, "subjectaccessreviews": {"create"},
	}, everywhere)
}

// mergeServed has the Roles in the namespaces of a manager, which are the same, count as one.
func mergeServed(grants []grant, requests map[request]int) (merged []grant, counted map[request]int) {
	one := func(binding string) (string, bool) {
		name, _, found := strings.Cut(binding, "/")
		if found && strings.Contains(name, "namespaced") {
			return name + "/...", true
		}
		return binding, false
	}
	for _, g := range grants {
		var several bool
		if g.binding, several = one(g.binding); several {
			g.namespace = "..."
		}
		if !slices.Contains(merged, g) {
			merged = append(merged, g)
		}
	}
	counted = map[request]int{}
	for r, times := range requests {
		r.binding, _ = one(r.binding)
		counted[r] += times
	}
	return merged, counted
}

// grantedOf are the exceptions that concern one of the grants.
func grantedOf(all []exception, grants []grant) []exception {
	return slices.DeleteFunc(slices.Clone(all), func(e exception) bool {
		return !slices.ContainsFunc(grants, func(g grant) bool { return g.access == e.access })
	})
}

// unservedKinds has an object of each kind say that its namespace has no operator of the whole cluster.
func unservedKinds(w *world) {
	kinds := map[string]bool{}
	for _, file := range []string{
		"training_v1alpha1_spotinstancevm", "seed-002-aijob", "aiplatform_v1alpha1_agent", "aiplatform_v1alpha1_agentworkflow",
	} {
		text, err := os.ReadFile(filepath.Join(root, "config/samples", file+".yaml"))
		require.NoError(w.t, err)
		for _, object := range installations.Decode(w.t, string(text)) {
			if object.GetKind() == "Namespace" {
				continue
			}
			object.SetNamespace(w.namespace)
			require.NoError(w.t, w.Create(w.t.Context(), object), file)
			w.await("the condition Ready of "+object.GetKind(), func(ctx context.Context) (bool, error) {
				if err := w.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
					return false, err
				}
				found, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
				if err != nil || len(found) == 0 {
					return false, err
				}
				is := found[0].(map[string]any)
				assert.Equal(w.t, []any{"Ready", "False", reasons.ClusterScopeRequired}, []any{is["type"], is["status"], is["reason"]})
				assert.Contains(w.t, is["message"], "--namespaces")
				return true, nil
			})
			kinds[object.GetKind()] = true
		}
	}
	assert.Len(w.t, kinds, 4, "%v", kinds)
	var pods corev1.PodList
	require.NoError(w.t, w.List(w.t.Context(), &pods, client.InNamespace(w.namespace)))
	assert.Empty(w.t, pods.Items)
}

// unservedQueue has a job wait that names an AIJobQueue.
func unservedQueue(w *world) {
	job := w.submit(builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{QueueName: "research"}
	}))
	w.awaitReason(job, reasons.ClusterScopeRequired)
	is := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionAdmitted)
	require.NotNil(w.t, is)
	assert.Equal(w.t, metav1.ConditionFalse, is.Status)
	assert.Contains(w.t, is.Message, "AIJobQueue research: no AIJobQueue is served in this namespace")
}
