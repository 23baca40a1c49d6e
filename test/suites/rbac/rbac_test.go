package rbac_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

func TestTheManagerMayDoWhatItNeedsAndNoMore(t *testing.T) {
	program := buildManager(t)
	counters := t.TempDir()
	t.Run("installed by", func(t *testing.T) {
		// The Helm chart has the roles of config/, which its own tests hold.
		for name, installation := range map[string]*installations.Installation{
			"config": installations.Kustomize(t, "default"), "bundle": installations.Bundle(t),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := startCluster(t, installation)
				driveAll(c, program, counters)

				requests, denied := requestsOf(t, c.auditLog(), installation.User())
				result := compare(c.grants(), requests, exceptions, installation.Namespace)
				t.Logf("what is granted, and how often it was used:\n%s", result.table)
				for _, refusal := range denied {
					assert.Fail(t, "refused: "+refusal, "grant it by an RBAC marker beside the code that asks for it")
				}
				for _, finding := range result.findings {
					assert.Fail(t, finding)
				}
				rulesHaveTheirScope(c)
			})
		}
		t.Run("the chart twice for some namespaces", func(t *testing.T) {
			t.Parallel()
			managersOfNamespaces(t, program, counters)
		})
		t.Run("the bundle for one namespace", func(t *testing.T) {
			t.Parallel()
			bundleOfOneNamespace(t, program, counters)
		})
	})
	t.Run("the scenarios drive every call of the API server", func(t *testing.T) { everyCallIsDriven(t, counters) })
}

// rulesHaveTheirScope checks that the rules of what is in namespaces, which a Role could have, are apart from those of what is not.
func rulesHaveTheirScope(c *cluster) {
	c.t.Helper()
	seen := map[bool]bool{}
	for _, g := range c.grants() {
		ofNamespaces := strings.HasSuffix(g.binding, "manager-namespaces-rolebinding") || strings.HasPrefix(g.binding, "permissions-")
		if !ofNamespaces && !strings.HasSuffix(g.binding, "-manager-rolebinding") && !strings.HasPrefix(g.binding, "cluster-permissions-") {
			continue
		}
		if g.access == namesUsers.access {
			assert.False(c.t, ofNamespaces, "the policy asks for it in the whole cluster")
			continue
		}
		resource, _, _ := strings.Cut(g.resource, "/")
		kind, err := c.RESTMapper().KindFor(schema.GroupVersionResource{Group: g.group, Resource: resource})
		require.NoError(c.t, err)
		mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(c.t, err)
		assert.Equal(c.t, mapping.Scope.Name() == meta.RESTScopeNameNamespace, ofNamespaces,
			"%s by %s: the RBAC marker of a kind that is in namespaces, and of no other, has namespace=system", g.access, g.binding)
		seen[ofNamespaces] = true
	}
	assert.Len(c.t, seen, 2, "rules of both are looked at")
}

// driveAll runs managers through all scenarios.
func driveAll(c *cluster, program, counters string) {
	m := c.startManager(program, "manager", counters)
	c.await("a leader", leaderOtherThan(c, ""))
	newWorld := func(t *testing.T) *world {
		t.Helper()
		return &world{cluster: c.in(t), manager: m, namespace: c.in(t).newNamespace()}
	}
	c.t.Run("scenarios", func(t *testing.T) {
		for _, scenario := range scenarios {
			t.Run(scenario.name, func(t *testing.T) {
				t.Parallel()
				scenario.drive(newWorld(t))
			})
		}
	})
	for _, scenario := range scenariosAlone {
		c.t.Run(scenario.name, func(t *testing.T) { scenario.drive(newWorld(t)) })
	}
	c.t.Run("another replica takes over", func(t *testing.T) {
		w, before := newWorld(t), c.leader()
		w.spoilCertificates()
		other := c.in(t)
		other.webhooks = installations.NewWebhooks(t, t.TempDir())
		// It reads lists, as it must from an API server that does not stream them (before Kubernetes 1.34).
		next := other.startManager(program, "next-manager", counters, "KUBE_FEATURE_WatchListClient=false")
		m.end()
		w.await("another leader", leaderOtherThan(c, before))
		w.trains("bert")
		w.awaitCertificates()
		next.end()
	})
}

// everyCallIsDriven looks for calls of the API server that no scenario makes.
func everyCallIsDriven(t *testing.T, counters string) {
	t.Helper()
	ran := coverage(t, counters)
	driven := map[string]bool{}
	for _, call := range callsOfTheAPIServer(t) {
		driven[call.String()] = driven[call.String()] || ran.covers(call)
	}
	require.NotEmpty(t, driven)
	for call, driven := range driven {
		reason, excepted := undriven[call]
		switch {
		case !driven && !excepted:
			assert.Fail(t, "no scenario makes the call of "+call, "add one to scenarios_test.go, or give the reason in exceptions_test.go")
		case driven && excepted && reason != behind: // how far a cache is behind is no scenario's matter
			assert.Fail(t, call+" is an exception ("+reason+"), but a scenario drives it: take it out of exceptions_test.go")
		}
	}
	t.Logf("%d calls", len(driven))
}
