// Package storageversion keeps every stored object of the operator's kinds in the version that the kind's CRD names as
// the storage version.
//
// When that version changes, the API server goes on holding older objects as they were written, and remembers every
// version that it ever stored in status.storedVersions of the CRD. A version that stands there cannot be removed from
// the CRD. The Migrator has the API server rewrite each object without a change, and then takes the versions that
// are no longer stored off that list.
package storageversion

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// CRDs are the names of the operator's own CRDs.
//
// A kind that gets a second version also needs, in the markers below, the permission to patch its objects and the
// status of its CRD; a test holds this.
func CRDs() []string {
	return []string{
		"agents.aiplatform.example.com",
		"agentworkflows.aiplatform.example.com",
		"aijobqueues.aiplatform.example.com",
		"aijobs.aiplatform.example.com",
		"computeclusters.aiplatform.example.com",
		"spotinstancejobs.training.training.dcnlab.com",
		"spotinstancevms.training.training.dcnlab.com",
		"trainingjobs.ml.example.com",
	}
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=agents.aiplatform.example.com;agentworkflows.aiplatform.example.com;aijobqueues.aiplatform.example.com;aijobs.aiplatform.example.com;computeclusters.aiplatform.example.com;spotinstancejobs.training.training.dcnlab.com;spotinstancevms.training.training.dcnlab.com;trainingjobs.ml.example.com,verbs=get;list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions/status,resourceNames=trainingjobs.ml.example.com,verbs=patch
// +kubebuilder:rbac:groups=ml.example.com,resources=trainingjobs,verbs=list;patch,namespace=system
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=system

// need is what a CRD says about the versions of its stored objects.
type need struct {
	// to is the storage version: what the API server writes.
	to string
	// from are the other versions in which objects may still be stored.
	from []string
	// through is a served version, by which the objects can be read and written: to, where that is served.
	through string
}

func needOf(crd *apiextensionsv1.CustomResourceDefinition) need {
	var n need
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			n.to = version.Name
		}
		if version.Served && (version.Storage || n.through == "") {
			n.through = version.Name
		}
	}
	for _, stored := range crd.Status.StoredVersions {
		if stored != n.to && !slices.Contains(n.from, stored) {
			n.from = append(n.from, stored)
		}
	}
	return n
}

// any says whether there may be objects to migrate.
func (n need) any() bool { return len(n.from) > 0 }
