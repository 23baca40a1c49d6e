package inventory

import (
	"k8s.io/apimachinery/pkg/types"
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

// OwnerOf reads the owner from the labels of an instance; false when they name none.
func OwnerOf(labels map[string]string) (Owner, bool) {
	owner := Owner{
		Cluster: labels[labelCluster], UID: types.UID(labels[labelVMUID]),
		VM: types.NamespacedName{Namespace: labels[labelNamespace], Name: labels[labelVM]},
	}
	return owner, owner.Cluster != "" && owner.UID != "" && owner.VM.Name != "" && owner.VM.Namespace != ""
}
