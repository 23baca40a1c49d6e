package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The API server refuses a CRD whose rules may cost more than its limits, by its own estimate, which differs from one version of it to
// the next. Half of the whole is left for that and for the rules of later releases, and a fifth for a single rule: those on amounts of
// resources take three quarters.
func TestRulesLeaveHalfOfTheBudget(t *testing.T) {
	const rule, whole = validation.StaticEstimatedCostLimit / 5 * 4, validation.StaticEstimatedCRDCostLimit / 2
	for _, crd := range crds(t) {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			for _, version := range crd.Spec.Versions {
				var schema apiextensions.JSONSchemaProps
				require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &schema, nil))
				var sum uint64
				costs(t, &schema, validation.RootCELContext(&schema), "", func(path string, cost uint64) {
					assert.LessOrEqual(t, cost, uint64(rule), "%s: this rule may cost %d: bound what it looks at", path, cost)
					sum += cost
				})
				assert.LessOrEqual(t, sum, uint64(whole), "all rules of %s together", version.Name)
				t.Logf("%s: %.1f %% of what all rules may cost", version.Name, 100*float64(sum)/validation.StaticEstimatedCRDCostLimit)
			}
		})
	}
}

// costs finds the estimate for each rule of a schema, as the API server does.
func costs(t *testing.T, schema *apiextensions.JSONSchemaProps, of *validation.CELSchemaContext, path string, found func(path string, cost uint64)) {
	t.Helper()
	if len(schema.XValidations) > 0 {
		info, err := of.TypeInfo()
		require.NoError(t, err)
		require.NotNil(t, info, path)
		compiled, err := cel.Compile(info.Schema, info.DeclType, celconfig.PerCallLimit, environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), cel.NewExpressionsEnvLoader())
		require.NoError(t, err)
		for i := range compiled {
			require.Nil(t, compiled[i].Error, path)
			times := uint64(1)
			if of.MaxCardinality != nil {
				times = *of.MaxCardinality
			}
			found(fmt.Sprintf("%s[%d]", path, i), times*compiled[i].MaxCost+compiled[i].MessageExpressionMaxCost)
		}
	}
	for name := range schema.Properties {
		child := schema.Properties[name]
		costs(t, &child, of.ChildPropertyContext(&child, name), path+"."+name, found)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		costs(t, schema.Items.Schema, of.ChildItemsContext(schema.Items.Schema), path+"[]", found)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		costs(t, schema.AdditionalProperties.Schema, of.ChildAdditionalPropertiesContext(schema.AdditionalProperties.Schema), path+"{}", found)
	}
}
