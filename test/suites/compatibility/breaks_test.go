package compatibility

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/crdify/pkg/validations/property"
)

type (
	definition = apiextensionsv1.CustomResourceDefinition
	version    = apiextensionsv1.CustomResourceDefinitionVersion
	schema     = apiextensionsv1.JSONSchemaProps
)

// breaks says what in the CRDs of a release breaks those who used the CRDs of the release before. Both are by name.
func breaks(t *testing.T, before, after map[string]*definition) []string {
	t.Helper()
	var found []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		next, ok := after[name]
		if !ok {
			found = append(found, name+": is gone, and with it every object of the kind")
			continue
		}
		for _, text := range slices.Concat(
			changedNames(before[name], next), removedVersions(before[name], next), differingVersions(next), narrowedSchemas(t, before[name], next),
		) {
			found = append(found, name+": "+text)
		}
	}
	return found
}

func changedNames(before, after *definition) []string {
	var found []string
	for what, values := range map[string][2]string{
		"group":     {before.Spec.Group, after.Spec.Group},
		"kind":      {before.Spec.Names.Kind, after.Spec.Names.Kind},
		"list kind": {before.Spec.Names.ListKind, after.Spec.Names.ListKind},
		"plural":    {before.Spec.Names.Plural, after.Spec.Names.Plural},
		"singular":  {before.Spec.Names.Singular, after.Spec.Names.Singular},
	} {
		if values[0] != values[1] {
			found = append(found, fmt.Sprintf("%s: was %s and is %s", what, values[0], values[1]))
		}
	}
	for what, values := range map[string][2][]string{
		"short name": {before.Spec.Names.ShortNames, after.Spec.Names.ShortNames},
		"category":   {before.Spec.Names.Categories, after.Spec.Names.Categories},
	} {
		for _, value := range values[0] {
			if !slices.Contains(values[1], value) {
				found = append(found, fmt.Sprintf("%s: %s is gone", what, value))
			}
		}
	}
	slices.Sort(found)
	return found
}

// removedVersions finds versions, and subresources of versions, that are not served any more. The release before must have
// marked the version as deprecated, so that its users were warned, and must not have stored objects in it: then nothing
// would have migrated them.
func removedVersions(before, after *definition) []string {
	var found []string
	for _, old := range before.Spec.Versions {
		next := versionOf(after, old.Name)
		served := next != nil && next.Served
		switch {
		case old.Served && !served && !old.Deprecated:
			found = append(found, fmt.Sprintf("%s: is not served any more, and was not deprecated in the release before", old.Name))
		case next == nil && old.Storage:
			found = append(found, fmt.Sprintf("%s: is gone, and the release before stored objects in it", old.Name))
		case old.Served && served:
			found = append(found, removedSubresources(old, *next)...)
		}
	}
	return found
}

func removedSubresources(before, after version) []string {
	var old, next apiextensionsv1.CustomResourceSubresources
	if before.Subresources != nil {
		old = *before.Subresources
	}
	if after.Subresources != nil {
		next = *after.Subresources
	}
	var found []string
	if old.Status != nil && next.Status == nil {
		found = append(found, before.Name+": the subresource status is gone")
	}
	if old.Scale != nil && (next.Scale == nil || next.Scale.SpecReplicasPath != old.Scale.SpecReplicasPath ||
		next.Scale.StatusReplicasPath != old.Scale.StatusReplicasPath) {
		found = append(found, before.Name+": the subresource scale is gone or means another field")
	}
	return found
}

// differingVersions finds served versions that are not the same although nothing converts between them: what one of them
// lacks is lost when an object is written by way of it.
func differingVersions(crd *definition) []string {
	if crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		return nil
	}
	served := slices.DeleteFunc(slices.Clone(crd.Spec.Versions), func(v version) bool { return !v.Served })
	if len(served) == 0 {
		return []string{"no version is served"}
	}
	var found []string
	first := served[0]
	for _, other := range served[1:] {
		if !equality.Semantic.DeepEqual(first.Schema, other.Schema) {
			found = append(found, fmt.Sprintf("%s: its schema differs from that of %s, and nothing converts between them", other.Name, first.Name))
		}
	}
	return found
}

func versionOf(crd *definition, name string) *version {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == name {
			return &crd.Spec.Versions[i]
		}
	}
	return nil
}

// narrowedSchemas compares each version with itself in the release before, by the same checks as OLM v1 makes before it upgrades an operator. What no check knows, a new validation rule for
// example, counts as a break.
func narrowedSchemas(t *testing.T, before, after *definition) []string {
	t.Helper()
	checks, err := runner.New(&config.Config{
		UnhandledEnforcement: config.EnforcementPolicyError,
		Validations: []config.ValidationConfig{
			{Name: "description", Enforcement: config.EnforcementPolicyNone},
			{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{
				"additionPolicy": property.AdditionPolicyAllow,
			}},
		},
	}, runner.DefaultRegistry())
	require.NoError(t, err)
	// A manifest has no status: what a cluster would have stored by then.
	before = before.DeepCopy()
	for _, v := range before.Spec.Versions {
		if v.Storage {
			before.Status.StoredVersions = []string{v.Name}
		}
	}
	results := checks.Run(before, after)
	var found []string
	for _, result := range results.CRDValidation {
		found = append(found, texts(result, "")...)
	}
	for _, of := range slices.Concat(results.SameVersionValidation, results.ServedVersionValidation) {
		for _, field := range of.PropertyComparisons {
			for _, result := range field.ComparisonResults {
				found = append(found, texts(result, of.Version+" "+field.Property+": ")...)
			}
		}
	}
	slices.Sort(found)
	return found
}

func texts(result validations.ComparisonResult, where string) []string {
	var found []string
	for _, text := range result.Errors {
		found = append(found, where+result.Name+": "+strings.TrimSpace(text))
	}
	return found
}
