package compatibility

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Changes to a schema, for the table.

func required(crd *definition, fields ...string) {
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := root.Properties["spec"]
	spec.Required = fields
	root.Properties["spec"] = spec
}

func addVersion(crd *definition, name string) {
	added := *crd.Spec.Versions[0].DeepCopy()
	added.Name, added.Storage = name, false
	crd.Spec.Versions = append(crd.Spec.Versions, added)
}

func store(crd *definition, name string) {
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == name
	}
}

func raw(json string) apiextensionsv1.JSON { return apiextensionsv1.JSON{Raw: []byte(json)} }

func rules(expression string) apiextensionsv1.ValidationRules {
	return apiextensionsv1.ValidationRules{{Rule: expression}}
}

func number(n float64) *float64 { return &n }

func count(n int64) *int64 { return &n }

func ptrTo[T any](value T) *T { return &value }
