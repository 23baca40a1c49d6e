//go:build e2e

package e2e

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// veleroBackup is what Velero keeps of a namespace, by resource: all that can be listed and created but events, and but what carries its label.
type veleroBackup map[schema.GroupVersionResource][]unstructured.Unstructured

// veleroFirst are the resources that Velero restores before others, in this order (the default of its flag --restore-resource-priorities, version
// 1.18, of namespaced resources). The others follow by name.
var veleroFirst = []string{
	"persistentvolumeclaims", "serviceaccounts", "secrets", "configmaps", "limitranges", "pods", "replicasets.apps", "endpoints", "services",
}

func backUpAsVelero(t *testing.T, namespace string) veleroBackup {
	t.Helper()
	api, err := dynamic.NewForConfig(cluster.config)
	require.NoError(t, err)
	served, err := cluster.typed.Discovery().ServerPreferredResources()
	require.NoError(t, err)
	backup := veleroBackup{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "create", "get"}}, served) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for i := range list.APIResources {
			if !list.APIResources[i].Namespaced || list.APIResources[i].Name == "events" {
				continue
			}
			resource := version.WithResource(list.APIResources[i].Name)
			found, err := api.Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "velero.io/exclude-from-backup!=true"})
			require.NoError(t, err, "list %s", resource)
			if len(found.Items) > 0 {
				backup[resource] = found.Items
			}
		}
	}
	return backup
}

// restoreAsVelero creates the objects in Velero's order, without owners and without statuses but those of these resources.
func restoreAsVelero(t *testing.T, backup veleroBackup, withStatus ...string) {
	t.Helper()
	api, err := dynamic.NewForConfig(cluster.config)
	require.NoError(t, err)
	rank := func(resource schema.GroupVersionResource) int {
		name := strings.TrimSuffix(resource.GroupResource().String(), ".")
		if at := slices.Index(veleroFirst, name); at >= 0 {
			return at
		}
		return len(veleroFirst)
	}
	order := slices.SortedFunc(maps.Keys(backup), func(a, b schema.GroupVersionResource) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.GroupResource().String(), b.GroupResource().String()))
	})
	for _, resource := range order {
		for _, object := range backup[resource] {
			restoreOne(t, api.Resource(resource).Namespace(object.GetNamespace()), object.DeepCopy(), slices.Contains(withStatus, resource.Resource))
		}
	}
}

func restoreOne(t *testing.T, api dynamic.ResourceInterface, object *unstructured.Unstructured, withStatus bool) {
	t.Helper()
	status := object.Object["status"]
	for _, field := range []string{
		"generateName", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"ownerReferences", "managedFields",
	} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(object.Object, "status")
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["velero.io/backup-name"], labels["velero.io/restore-name"] = "training", "training-1"
	object.SetLabels(labels)
	created, err := api.Create(t.Context(), object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // such as what a namespace has from the start
		return
	}
	require.NoError(t, err, "restore %s %s", object.GetKind(), object.GetName())
	if withStatus && status != nil {
		created.Object["status"] = status
		_, err = api.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err, "restore the status of %s %s", object.GetKind(), object.GetName())
	}
}
