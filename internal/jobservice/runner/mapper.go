package runner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// newMapper knows the kinds that are worked with, so that the service can start, and take jobs, while the API server does not answer.
func newMapper() meta.RESTMapper {
	platform, core := aiplatformv1alpha1.GroupVersion, corev1.SchemeGroupVersion
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{platform, core})
	mapper.Add(platform.WithKind("AIJob"), meta.RESTScopeNamespace)
	mapper.Add(platform.WithKind("AgentWorkflow"), meta.RESTScopeNamespace)
	mapper.Add(platform.WithKind("AIJobQueue"), meta.RESTScopeRoot)
	mapper.Add(platform.WithKind("ComputeCluster"), meta.RESTScopeRoot)
	mapper.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(core.WithKind("Node"), meta.RESTScopeRoot)
	return mapper
}
