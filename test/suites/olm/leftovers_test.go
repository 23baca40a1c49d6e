//go:build olm

package olm

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// remains are the objects that an uninstalled operator leaves behind, and why.
var remains = []struct {
	resource, prefix, why string
}{
	{"customresourcedefinitions.apiextensions.k8s.io", "", "OLM never removes CRDs, because users' objects would go with them"},
	{"apiservices.apiregistration.k8s.io", "", "Kubernetes makes one for each version of a CRD"},
	{"clusterroles.rbac.authorization.k8s.io", "", "OLM makes roles for users of each CRD, which go with the CRD"},
	{"operators.operators.coreos.com", packageName + ".", "OLM's list of what belongs to a package, as long as there are CRDs"},
	{"persistentvolumes", "pvc-", "the users' checkpoints"},
	{"packagemanifests.packages.operators.coreos.com", "", "what catalogs offer"},
	{"nodes.metrics.k8s.io", "", "a figure, not an object"},
}

// inventory lists every object of the cluster, except those in namespaces of users and of Kubernetes itself, those of
// this test, which begin with the name of its namespace, and events.
func inventory(t *testing.T) []string {
	t.Helper()
	client, err := metadata.NewForConfig(cluster.config)
	require.NoError(t, err)
	lists, err := cluster.typed.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		require.NoError(t, err)
	}
	var all []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, kind := range list.APIResources {
			resource := version.WithResource(kind.Name)
			if slices.Contains(kind.Verbs, "list") && slices.Contains(kind.Verbs, "delete") && kind.Name != "events" {
				all = append(all, objects(t.Context(), client, resource)...)
			}
		}
	}
	return all
}

func objects(ctx context.Context, client metadata.Interface, resource schema.GroupVersionResource) []string {
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil { // not every resource can be listed this way
		return nil
	}
	var names []string
	for _, object := range list.Items {
		if object.Namespace == userNamespace || strings.HasPrefix(object.Name, userNamespace) || strings.HasPrefix(object.Namespace, "kube-") {
			continue
		}
		names = append(names, resource.GroupResource().String()+" "+object.Namespace+"/"+object.Name)
	}
	return names
}

// leftovers are the objects that were not there before and have no reason to be there still.
func leftovers(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(object string) bool {
		resource, name, _ := strings.Cut(object, " ")
		namespace, name, _ := strings.Cut(name, "/")
		for _, remain := range remains {
			if resource == remain.resource && namespace == "" && strings.HasPrefix(name, remain.prefix) {
				return true
			}
		}
		return slices.Contains(before, object)
	})
}
