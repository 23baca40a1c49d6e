package trainingjob

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// request is an admission request with objects written in YAML.
func request(t *testing.T, operation admissionv1.Operation, object, old string) admission.Request {
	t.Helper()
	raw := func(text string) runtime.RawExtension {
		if text == "" {
			return runtime.RawExtension{}
		}
		data, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		return runtime.RawExtension{Raw: data}
	}
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "of-the-request", Operation: operation, Namespace: "default", Object: raw(object), OldObject: raw(old),
	}}
}

func TestDefaulting(t *testing.T) {
	pin := func(image string) []jsonpatch.Operation {
		return []jsonpatch.Operation{{Operation: "add", Path: "/spec/image", Value: image}}
	}
	tests := map[string]struct {
		operation admissionv1.Operation
		job, old  string
		want      []jsonpatch.Operation
	}{
		"a new job without image gets the operator's":         {"CREATE", `spec: {framework: pytorch}`, "", pin("worker:1")},
		"a new job keeps its own image":                       {"CREATE", `spec: {framework: pytorch, image: mine}`, "", nil},
		"an empty image is the schema's to refuse":            {"CREATE", `spec: {framework: pytorch, image: ""}`, "", nil},
		"a framework that is not run yet leaves it open":      {"CREATE", `spec: {framework: jax}`, "", nil},
		"a framework of a wrong type is the schema's":         {"CREATE", `spec: {framework: 1}`, "", nil},
		"a job without spec is the schema's":                  {"CREATE", `metadata: {name: x}`, "", nil},
		"a spec of a wrong type is the schema's":              {"CREATE", `spec: [1]`, "", nil},
		"a job that is replaced by its manifest keeps it":     {"UPDATE", `spec: {framework: pytorch}`, `spec: {image: "worker:0"}`, pin("worker:0")},
		"an update of a job that never had one leaves it out": {"UPDATE", `spec: {framework: pytorch}`, `spec: {}`, nil},
		"an update that names another is the schema's":        {"UPDATE", `spec: {image: b}`, `spec: {image: a}`, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := &defaulter{defaultImage: func(framework mlv1.Framework) string {
				if framework == mlv1.FrameworkPyTorch {
					return "worker:1"
				}
				return ""
			}}
			response := d.Handle(t.Context(), request(t, test.operation, test.job, test.old))
			assert.True(t, response.Allowed)
			assert.Equal(t, test.want, response.Patches)
		})
	}
}

func TestTheCreatorIsNoted(t *testing.T) {
	d := &defaulter{defaultImage: func(mlv1.Framework) string { return "worker:1" }}
	created := request(t, "CREATE", `{metadata: {annotations: {"aiplatform.example.com/user": bob}}, spec: {framework: pytorch}}`, "")
	created.UserInfo.Username = "alice"
	response := d.Handle(t.Context(), created)
	assert.True(t, response.Allowed)
	assert.Equal(t, []jsonpatch.Operation{
		{Operation: "replace", Path: "/metadata/annotations/aiplatform.example.com~1user", Value: "alice"},
		{Operation: "add", Path: "/spec/image", Value: "worker:1"},
	}, response.Patches)
	assert.Len(t, response.Warnings, 1)

	// A job from before, whose creator is not known, stays so.
	changed := request(t, "UPDATE", `{metadata: {annotations: {"aiplatform.example.com/user": bob}}, spec: {image: mine}}`, `spec: {image: mine}`)
	changed.UserInfo.Username = "bob"
	assert.Equal(t, []jsonpatch.Operation{
		{Operation: "remove", Path: "/metadata/annotations/aiplatform.example.com~1user"},
	}, d.Handle(t.Context(), changed).Patches)
}

func TestDefaultingLeavesOtherResourcesAlone(t *testing.T) {
	scale := request(t, "UPDATE", `spec: {replicas: 3}`, `spec: {replicas: 2}`)
	scale.SubResource = "scale"
	response := (&defaulter{}).Handle(t.Context(), scale)
	assert.True(t, response.Allowed)
	assert.Empty(t, response.Patches)
}

// What the schema's pattern lets pass and no client can read is refused before it is stored.
func TestUnreadableAmountsAreRefused(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string // fields
	}{
		"amounts of all kinds": {`{resources: {limits: {cpu: 1, memory: 32Gi, rdma/hca: "1e3", a/b: .5}, requests: {cpu: 0.5, memory: "1E"}}}`, nil},
		"an exponent with a fraction": {`{resources: {limits: {rdma/hca: "1e1.5"}, requests: {a/b: "2"}}}`,
			[]string{"spec.resources.limits[rdma/hca]"}},
		"an exponent that is too large": {`{resources: {requests: {a/b: "1e99999999999999999999"}}}`, []string{"spec.resources.requests[a/b]"}},
		"words":                         {`{resources: {limits: {cpu: lots, memory: lots}}}`, []string{"spec.resources.limits[cpu]", "spec.resources.limits[memory]"}},
		"a claim's size":                {`{checkpoint: {storage: {size: 1e1.5}}}`, []string{"spec.checkpoint.storage.size"}},
		"a divisor": {`{env: [{name: A}, {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1e1.5}}}]}`,
			[]string{"spec.env[1].valueFrom.resourceFieldRef.divisor"}},
		"other types are the schema's": {`{resources: {limits: {cpu: true}}, env: {a: b}, checkpoint: 5}`, nil},
		"resources of a wrong type":    {`{resources: [1]}`, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := &defaulter{defaultImage: func(mlv1.Framework) string { return "" }}
			response := d.Handle(t.Context(), request(t, "CREATE", "spec: "+test.spec, ""))
			require.Equal(t, len(test.want) == 0, response.Allowed)
			if response.Allowed {
				return
			}
			var fields []string
			for _, cause := range response.Result.Details.Causes {
				fields = append(fields, cause.Field)
				assert.Contains(t, response.Result.Message, cause.Field+": ")
			}
			assert.Equal(t, test.want, fields)
			assert.Contains(t, response.Result.Message, "is not an amount that Kubernetes can read: write for example 1, 500m or 32Gi")
			assert.EqualValues(t, http.StatusUnprocessableEntity, response.Result.Code)
			assert.Equal(t, metav1.StatusReasonInvalid, response.Result.Reason)
		})
	}
}

// Whatever passes the check can be decoded.
func TestReadableAmountsAreThoseThatDecode(t *testing.T) {
	for _, amount := range []string{"1", "0", "-1", "+1", "1.", ".5", "1e3", "1E3", "1e-3", "1e+3", "1e1.5", "1e", "1E", "1Ei", "1ki", "1k", "", " 1", "0x10", "1_000", "٣"} {
		text, err := json.Marshal(amount)
		require.NoError(t, err)
		var job mlv1.TrainingJob
		object := []byte(`{"spec":{"resources":{"limits":{"a/b":` + string(text) + `}}}}`)
		decodes := json.Unmarshal(object, &job) == nil
		assert.Equal(t, decodes, len(unreadableQuantities(specOf(object))) == 0, "amount %q", amount)
	}
}
