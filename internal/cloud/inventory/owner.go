package inventory

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// Labels of instances. Providers take only lower case letters, digits, '-' and '_' in them.
const (
	labelCluster   = "spot-training-cluster"
	labelNamespace = "spot-training-namespace"
	labelVM        = "spot-training-vm"
	labelVMUID     = "spot-training-vm-uid"
)

// Owner is whom an instance belongs to.
type Owner struct {
	// Cluster is the UID of the namespace kube-system of the cluster whose node the instance is to be: several clusters
	// may share a project.
	Cluster string
	// VM is the SpotInstanceVM.
	VM types.NamespacedName
	// UID of the SpotInstanceVM: another one of the same name does not own the instance.
	UID types.UID
}

// Labels by which an instance of the owner is found again when nothing else is known of it.
func (o Owner) Labels() map[string]string {
	return map[string]string{
		labelCluster: o.Cluster, labelNamespace: o.VM.Namespace, labelVM: o.VM.Name, labelVMUID: string(o.UID),
	}
}

// OwnerOf reads the owner from the labels of an instance; false when they name none, or one that gives its instances other names: labels
// can be copied to a machine that is already there, its name cannot be changed.
func OwnerOf(instance *cloud.Instance) (Owner, bool) {
	labels := instance.Labels
	owner := Owner{
		Cluster: labels[labelCluster], UID: types.UID(labels[labelVMUID]),
		VM: types.NamespacedName{Namespace: labels[labelNamespace], Name: labels[labelVM]},
	}
	isComplete := owner.Cluster != "" && owner.UID != "" && owner.VM.Name != "" && owner.VM.Namespace != ""
	return owner, isComplete && strings.HasPrefix(instance.Name, owner.VM.Name+"-")
}
