package spotinstancevm

import (
	"context"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// ownerOf is what the labels of a SpotInstanceVM's instances say.
func (r *Reconciler) ownerOf(vm *spotv1alpha1.SpotInstanceVM) inventory.Owner {
	return inventory.Owner{Cluster: r.cluster, VM: client.ObjectKeyFromObject(vm), UID: vm.UID}
}

// deleteOwn asks for the end of an instance, named by its ID where it is known, if its labels still name the owner. The request names it
// by its ID: its name may be another machine's by then.
func deleteOwn(ctx context.Context, provider cloud.Provider, zone, instance string, owner inventory.Owner) (cloud.Operation, error) {
	found, err := provider.Get(ctx, zone, instance)
	if err != nil {
		return cloud.Operation{}, err
	}
	if is, ok := inventory.OwnerOf(found); !ok || is != owner {
		return cloud.Operation{}, &cloud.Error{
			Class: cloud.NotFound, Code: "NotOwned",
			Message: "instance " + found.Name + " does not have the labels of its SpotInstanceVM, so that the operator leaves it alone: " +
				"delete it if nothing else needs it",
		}
	}
	return provider.Delete(ctx, zone, found.ID, string(uuid.NewUUID()))
}

// clockSlack is how far the clock of the API server may be behind that of the provider.
const clockSlack = 5 * time.Second

// isNodeOf says whether a Node is that of an instance. An instance registers its Node with these labels; a machine that happens to have
// the same name does not, and one that was there before is older. No other Node gets them from the operator: config/node-binding forbids it.
func isNodeOf(node *corev1.Node, vm *spotv1alpha1.SpotInstanceVM, entry *spotv1alpha1.ProvisionedInstance) bool {
	if created := entry.CreationTime; created != nil && node.CreationTimestamp.Time.Before(created.Add(-clockSlack)) {
		return false
	}
	place, known := strings.CutPrefix(node.Spec.ProviderID, "gce://")
	return labels.SelectorFromSet(labelsOfNode(vm)).Matches(labels.Set(node.Labels)) &&
		(!known || place == path.Join(vm.Spec.GCP.Project, entry.Zone, entry.Name))
}

// nodeOf is the Node of an instance as it is in the cache; nil when there is none, or it is another machine's.
func (r *Reconciler) nodeOf(ctx context.Context, one step) (*corev1.Node, error) {
	node, err := reconciling.Get[corev1.Node](ctx, r, "", one.name)
	if node == nil || !isNodeOf(node, one.vm, one.entry) {
		return nil, err
	}
	return node, nil
}
