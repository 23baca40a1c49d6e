package compatibility

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// small is a CRD with a field of each kind.
const small = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing, shortNames: [th], categories: [ml]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [model]
            properties:
              model: {type: string, minLength: 1, maxLength: 20, pattern: "^[a-z]+$"}
              mode: {type: string, enum: [fast, slow], default: fast}
              count: {type: integer, minimum: 1, maximum: 100}
              list: {type: array, minItems: 0, maxItems: 10, items: {type: string, maxLength: 5}}
              labels: {type: object, maxProperties: 3, additionalProperties: {type: string}}
              note: {type: string, description: a note}
`

// read returns the small CRD after a change.
func read(t *testing.T, change func(crd *definition, spec schema)) map[string]*definition {
	t.Helper()
	crd := &definition{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(small), crd))
	if change != nil {
		change(crd, crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	}
	return map[string]*definition{crd.Name: crd}
}

// field changes one field of the spec.
func field(name string, change func(*schema)) func(*definition, schema) {
	return func(_ *definition, spec schema) {
		f := spec.Properties[name]
		change(&f)
		spec.Properties[name] = f
	}
}

func TestBreaks(t *testing.T) {
	tests := map[string]struct {
		before, after func(*definition, schema)
		// want is part of the one break that is found; empty when there must be none.
		want string
	}{
		"nothing changes": {},

		// What is allowed.
		"a description changes":        {after: field("note", func(f *schema) { f.Description = "another note" })},
		"an optional field is added":   {after: field("new", func(f *schema) { f.Type = "string" })},
		"a required field is optional": {after: func(crd *definition, _ schema) { required(crd) }},
		"an enum gets a value":         {after: field("mode", func(f *schema) { f.Enum = append(f.Enum, raw(`"other"`)) })},
		"a range widens":               {after: field("count", func(f *schema) { f.Minimum, f.Maximum = number(0), number(200) })},
		"a length grows":               {after: field("model", func(f *schema) { f.MaxLength = count(40) })},
		"a list may be longer":         {after: field("list", func(f *schema) { f.MaxItems = count(20) })},
		"a short name is added": {after: func(crd *definition, _ schema) {
			crd.Spec.Names.ShortNames = append(crd.Spec.Names.ShortNames, "tg")
		}},
		"the same schema is served as another version": {after: func(crd *definition, _ schema) { addVersion(crd, "v1beta1") }},
		"a deprecated version goes": {before: func(crd *definition, _ schema) {
			addVersion(crd, "v1beta1")
			crd.Spec.Versions[1].Deprecated = true
		}},
		"a deprecated version is not served any more": {
			before: func(crd *definition, _ schema) { addVersion(crd, "v1beta1"); crd.Spec.Versions[1].Deprecated = true },
			after:  func(crd *definition, _ schema) { addVersion(crd, "v1beta1"); crd.Spec.Versions[1].Served = false },
		},
		"a version goes that was not served": {
			before: func(crd *definition, _ schema) { addVersion(crd, "v1beta1"); crd.Spec.Versions[1].Served = false },
		},
		"the storage version changes": {
			before: func(crd *definition, _ schema) { addVersion(crd, "v1beta1"); store(crd, "v1beta1") },
			after:  func(crd *definition, _ schema) { addVersion(crd, "v1beta1") },
		},

		// Names and scope.
		"the kind is renamed":   {after: func(crd *definition, _ schema) { crd.Spec.Names.Kind = "Other" }, want: "kind: was Thing and is Other"},
		"the group changes":     {after: func(crd *definition, _ schema) { crd.Spec.Group = "other.com" }, want: "group: was example.com"},
		"the plural changes":    {after: func(crd *definition, _ schema) { crd.Spec.Names.Plural = "thingies" }, want: "plural: was things"},
		"the singular changes":  {after: func(crd *definition, _ schema) { crd.Spec.Names.Singular = "one" }, want: "singular: was thing"},
		"the list kind changes": {after: func(crd *definition, _ schema) { crd.Spec.Names.ListKind = "Things" }, want: "list kind: was ThingList"},
		"a short name goes":     {after: func(crd *definition, _ schema) { crd.Spec.Names.ShortNames = nil }, want: "short name: th is gone"},
		"a category goes":       {after: func(crd *definition, _ schema) { crd.Spec.Names.Categories = nil }, want: "category: ml is gone"},
		"the scope changes":     {after: func(crd *definition, _ schema) { crd.Spec.Scope = "Cluster" }, want: "scope"},
		"the CRD goes":          {after: func(crd *definition, _ schema) { crd.Name = "others.example.com" }, want: "is gone, and with it every object"},
		"the status is gone":    {after: func(crd *definition, _ schema) { crd.Spec.Versions[0].Subresources.Status = nil }, want: "subresource status is gone"},
		"scale is gone":         {after: func(crd *definition, _ schema) { crd.Spec.Versions[0].Subresources.Scale = nil }, want: "subresource scale is gone"},
		"scale means another field": {after: func(crd *definition, _ schema) {
			crd.Spec.Versions[0].Subresources.Scale.SpecReplicasPath = ".spec.replicas"
		}, want: "subresource scale is gone or means another field"},

		// Versions.
		"a version goes that was not deprecated": {
			before: func(crd *definition, _ schema) { addVersion(crd, "v1beta1") },
			want:   "v1beta1: is not served any more, and was not deprecated in the release before",
		},
		"a version is not served any more": {
			before: func(crd *definition, _ schema) { addVersion(crd, "v1beta1") },
			after:  func(crd *definition, _ schema) { addVersion(crd, "v1beta1"); crd.Spec.Versions[1].Served = false },
			want:   "v1beta1: is not served any more, and was not deprecated in the release before",
		},
		"a version that is not served any more loses its fields": {
			before: func(crd *definition, _ schema) { addVersion(crd, "v1beta1"); crd.Spec.Versions[1].Deprecated = true },
			after: func(crd *definition, _ schema) {
				addVersion(crd, "v1beta1")
				crd.Spec.Versions[1].Served = false
				crd.Spec.Versions[1].Schema.OpenAPIV3Schema = &schema{Type: "object", XPreserveUnknownFields: ptrTo(true)}
			},
			want: "removed field",
		},
		"no version is left that is served": {
			before: func(crd *definition, _ schema) { crd.Spec.Versions[0].Deprecated = true },
			after:  func(crd *definition, _ schema) { crd.Spec.Versions[0].Served = false },
			want:   "no version is served",
		},
		"the storage version goes": {
			before: func(crd *definition, _ schema) {
				addVersion(crd, "v1beta1")
				crd.Spec.Versions[1].Deprecated = true
				store(crd, "v1beta1")
			},
			want: "v1beta1: is gone, and the release before stored objects in it",
		},
		"two versions differ": {
			after: func(crd *definition, _ schema) {
				addVersion(crd, "v1beta1")
				crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["more"] = schema{Type: "string"}
			},
			want: "v1beta1: its schema differs from that of v1",
		},

		// Fields.
		"a field goes":            {after: func(_ *definition, spec schema) { delete(spec.Properties, "note") }, want: "note"},
		"a field is required now": {after: func(crd *definition, _ schema) { required(crd, "model", "count") }, want: "required"},
		"a new field is required": {after: func(crd *definition, spec schema) {
			spec.Properties["new"] = schema{Type: "string"}
			required(crd, "model", "new")
		}, want: "required"},
		"a type changes":                   {after: field("note", func(f *schema) { f.Type = "integer" }), want: "type"},
		"the type of items changes":        {after: field("list", func(f *schema) { f.Items.Schema.Type = "integer"; f.Items.Schema.MaxLength = nil }), want: "type"},
		"the type of map values changes":   {after: field("labels", func(f *schema) { f.AdditionalProperties.Schema.Type = "integer" }), want: "type"},
		"a default changes":                {after: field("mode", func(f *schema) { f.Default = ptrTo(raw(`"slow"`)) }), want: "default"},
		"a default goes":                   {after: field("mode", func(f *schema) { f.Default = nil }), want: "default"},
		"an enum loses a value":            {after: field("mode", func(f *schema) { f.Enum = f.Enum[:1] }), want: "enum"},
		"a field gets an enum":             {after: field("note", func(f *schema) { f.Enum = append(f.Enum, raw(`"a"`)) }), want: "enum"},
		"a minimum rises":                  {after: field("count", func(f *schema) { f.Minimum = number(2) }), want: "minimum"},
		"a maximum falls":                  {after: field("count", func(f *schema) { f.Maximum = number(99) }), want: "maximum"},
		"a maximum is excluded":            {after: field("count", func(f *schema) { f.ExclusiveMaximum = true }), want: "xclusiveMaximum"},
		"a field gets a maximum":           {after: field("labels", func(f *schema) { f.MaxProperties = count(2) }), want: "maxProperties"},
		"a length is bounded":              {after: field("note", func(f *schema) { f.MaxLength = count(10) }), want: "maxLength"},
		"a length falls":                   {after: field("model", func(f *schema) { f.MaxLength = count(10) }), want: "maxLength"},
		"a least length rises":             {after: field("model", func(f *schema) { f.MinLength = count(2) }), want: "minLength"},
		"a list may be less long":          {after: field("list", func(f *schema) { f.MaxItems = count(5) }), want: "maxItems"},
		"a list must be longer":            {after: field("list", func(f *schema) { f.MinItems = count(1) }), want: "minItems"},
		"an item's length falls":           {after: field("list", func(f *schema) { f.Items.Schema.MaxLength = count(4) }), want: "maxLength"},
		"a pattern changes":                {after: field("model", func(f *schema) { f.Pattern = "^[a-z]{2,}$" }), want: "attern"},
		"a field gets a pattern":           {after: field("note", func(f *schema) { f.Pattern = "^a" }), want: "attern"},
		"a format is asked for":            {after: field("note", func(f *schema) { f.Format = "date" }), want: "ormat"},
		"a validation rule is added":       {after: field("note", func(f *schema) { f.XValidations = rules(`self != ""`) }), want: "alidation"},
		"a list becomes a set":             {after: field("list", func(f *schema) { f.XListType = ptrTo("set") }), want: "istType"},
		"unknown fields are dropped again": {before: field("labels", func(f *schema) { f.XPreserveUnknownFields = ptrTo(true) }), want: "reserveUnknownFields"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			found := breaks(t, read(t, test.before), read(t, test.after))
			if test.want == "" {
				assert.Empty(t, found)
				return
			}
			require.NotEmpty(t, found, "the break was not found")
			t.Log(found)
			assert.Contains(t, found[0], test.want)
			assert.Contains(t, found[0], "things.example.com: ")
		})
	}
}

func TestNewKindsAreNoBreak(t *testing.T) {
	after := read(t, nil)
	after["others.example.com"] = after["things.example.com"]
	assert.Empty(t, breaks(t, read(t, nil), after))
}
