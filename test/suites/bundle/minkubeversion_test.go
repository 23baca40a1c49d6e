package bundle_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// An API server accepts in a new CRD only such CEL as the minor version before it understood, so that it can be rolled
// back. All rules of the CRDs must be of that kind for the oldest Kubernetes that the bundle says it runs on.
func TestTheOldestKubernetesUnderstandsEveryRule(t *testing.T) {
	oldest := version.MustParseGeneric(csv(t).Spec.MinKubeVersion)
	understood := environment.MustBaseEnvSet(oldest.SubtractMinor(1))
	rules := 0
	for name, crd := range crds(t) {
		for _, v := range crd.Spec.Versions {
			walk(structural(t, v.Schema.OpenAPIV3Schema), name+" "+v.Name, true, func(s *schema.Structural, path string, resource bool) {
				results, err := cel.Compile(s, model.SchemaDeclType(s, resource), celconfig.PerCallLimit, understood, cel.NewExpressionsEnvLoader())
				require.NoError(t, err, path)
				for i, result := range results {
					rules++
					assert.Nil(t, result.Error, "%s: %s", path, s.XValidations[i].Rule)
					assert.Nil(t, result.MessageExpressionError, "%s: %s", path, s.XValidations[i].MessageExpression)
				}
			})
		}
	}
	assert.Greater(t, rules, 100, "rules that were compiled")
}

func structural(t *testing.T, properties *apiextensionsv1.JSONSchemaProps) *schema.Structural {
	t.Helper()
	var internal apiextensions.JSONSchemaProps
	require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(properties, &internal, nil))
	s, err := schema.NewStructural(&internal)
	require.NoError(t, err)
	return s
}

// walk visits a schema and everything below it.
func walk(s *schema.Structural, path string, resource bool, visit func(s *schema.Structural, path string, resource bool)) {
	visit(s, path, resource)
	for name := range s.Properties {
		property := s.Properties[name]
		walk(&property, path+"."+name, property.XEmbeddedResource, visit)
	}
	if s.Items != nil {
		walk(s.Items, path+"[]", s.Items.XEmbeddedResource, visit)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		walk(s.AdditionalProperties.Structural, path+"{}", s.AdditionalProperties.Structural.XEmbeddedResource, visit)
	}
}
