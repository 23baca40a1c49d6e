package api_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// crds reads the CRDs as they are installed.
func crds(t *testing.T) []apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(crdFolder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var crd apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict(data, &crd), file)
		all = append(all, crd)
	}
	return all
}

func TestEveryKindShowsWhatMatters(t *testing.T) {
	for _, crd := range crds(t) {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			assert.NotEmpty(t, crd.Spec.Names.ShortNames, "short names")
			assert.Equal(t, []string{"ml"}, crd.Spec.Names.Categories)
			for _, version := range crd.Spec.Versions {
				if assert.NotNil(t, version.Subresources, "%s: subresources", version.Name) {
					assert.NotNil(t, version.Subresources.Status, "%s: status subresource", version.Name)
				}
				assert.NotEmpty(t, version.Schema.OpenAPIV3Schema.Description, "%s: description", version.Name)
				columns := map[string]bool{}
				for _, column := range version.AdditionalPrinterColumns {
					columns[column.Name] = true
					assert.True(t, column.Name == "Age" || column.Description != "", "column %s has no description", column.Name)
				}
				assert.True(t, columns["Age"], "%s: column Age", version.Name)
				assert.GreaterOrEqual(t, len(columns), 5, "%s: printer columns", version.Name)
			}
		})
	}
}

func TestShortNamesAreUnique(t *testing.T) {
	owner := map[string]string{}
	for _, crd := range crds(t) {
		names := append([]string{crd.Spec.Names.Plural, crd.Spec.Names.Singular}, crd.Spec.Names.ShortNames...)
		for _, name := range names {
			assert.Empty(t, owner[name], "%s and %s both have the name %s", owner[name], crd.Spec.Names.Kind, name)
			owner[name] = crd.Spec.Names.Kind
		}
	}
}

// Every field of our own is described. Those in the pod template of SpotInstanceJob, and in the settings of pods, are Kubernetes', and
// their descriptions are left out (see hack/crdedit/trim.go and pods.go).
func TestEveryFieldIsDescribed(t *testing.T) {
	var trimmed []string
	for _, field := range []string{"volumes", "volumeMounts", "envFrom", "podTemplate.initContainers", "podTemplate.topologySpreadConstraints",
		"podTemplate.resourceClaims", "podTemplate.hostAliases", "podTemplate.dnsConfig", "securityContext", "affinity", "imagePullSecrets"} {
		trimmed = append(trimmed, ".spec."+field, ".spec.workers."+field)
	}
	trimmed = append(trimmed, ".spec.jobTemplate")
	for _, crd := range crds(t) {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			for _, version := range crd.Spec.Versions {
				for _, field := range undescribed(*version.Schema.OpenAPIV3Schema, "", trimmed) {
					t.Errorf("%s has no description", field)
				}
			}
		})
	}
}

func undescribed(schema apiextensionsv1.JSONSchemaProps, path string, trimmed []string) []string {
	if slices.Contains(trimmed, path) {
		return nil
	}
	var missing []string
	for name, field := range schema.Properties {
		if field.Description == "" && path+"."+name != ".metadata" { // controller-gen leaves that to Kubernetes
			missing = append(missing, path+"."+name)
		}
		missing = append(missing, undescribed(field, path+"."+name, trimmed)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		missing = append(missing, undescribed(*schema.Items.Schema, path+"[]", trimmed)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		missing = append(missing, undescribed(*schema.AdditionalProperties.Schema, path+"{}", trimmed)...)
	}
	return missing
}

// kubectl apply keeps the whole object in an annotation, and all annotations of an object take at most 256 KiB.
func TestCRDsCanBeApplied(t *testing.T) {
	for _, crd := range crds(t) {
		data, err := json.Marshal(crd)
		require.NoError(t, err)
		assert.Less(t, len(data), 250_000, "%s: run go generate ./api/... after controller-gen", crd.Name)
	}
}

// A list without a type is replaced as a whole by server-side apply, and may hold the same key twice.
func TestEveryListSaysHowItIsMerged(t *testing.T) {
	for _, crd := range crds(t) {
		for _, version := range crd.Spec.Versions {
			for _, list := range untypedLists(*version.Schema.OpenAPIV3Schema, "") {
				if !strings.HasPrefix(list, ".spec.jobTemplate.") {
					t.Errorf("%s: %s has no list type", crd.Spec.Names.Kind, list)
				}
			}
		}
	}
}

func untypedLists(schema apiextensionsv1.JSONSchemaProps, path string) []string {
	var lists []string
	if schema.Type == "array" && schema.XListType == nil {
		lists = append(lists, path)
	}
	for name, field := range schema.Properties {
		lists = append(lists, untypedLists(field, path+"."+name)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		lists = append(lists, untypedLists(*schema.Items.Schema, path+"[]")...)
	}
	return lists
}

// Before Kubernetes 1.36 the API server does not hold integers to their format. One stored object with a number that is no int32
// would have every list of its kind fail. Fields of Kubernetes' own types cannot be marked: hack/crdedit/bound.go bounds them.
func TestEveryInt32HasBounds(t *testing.T) {
	for _, crd := range crds(t) {
		for _, version := range crd.Spec.Versions {
			for _, field := range unbounded(version.Schema.OpenAPIV3Schema.Properties["spec"], ".spec") {
				t.Errorf("%s %s: %s is an int32, but takes numbers that are none: set its minimum and maximum", crd.Spec.Names.Kind, version.Name, field)
			}
		}
	}
}

func unbounded(schema apiextensionsv1.JSONSchemaProps, path string) []string {
	var fields []string
	if schema.Format == "int32" &&
		(schema.Minimum == nil || *schema.Minimum < math.MinInt32 || schema.Maximum == nil || *schema.Maximum > math.MaxInt32) {
		fields = append(fields, path)
	}
	for name, field := range schema.Properties {
		fields = append(fields, unbounded(field, path+"."+name)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		fields = append(fields, unbounded(*schema.Items.Schema, path+"[]")...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		fields = append(fields, unbounded(*schema.AdditionalProperties.Schema, path+"{}")...)
	}
	return fields
}
