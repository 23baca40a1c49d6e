package creator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

const service = "system:serviceaccount:spot-training-operator-system:spot-training-operator-job-service"

func TestTheUserIsNoted(t *testing.T) {
	none := ""
	for name, test := range map[string]struct {
		operation admissionv1.Operation
		by        string
		before    string
		given     string
		want      string
		warns     bool
	}{
		"a user creates a job":                       {operation: "CREATE", by: "alice", given: `{}`, want: "alice"},
		"one with other annotations":                 {operation: "CREATE", by: "alice", given: `{"annotations": {"a": "b"}}`, want: "alice"},
		"annotations that are null":                  {operation: "CREATE", by: "alice", given: `{"annotations": null}`, want: "alice"},
		"a user claims to be another":                {operation: "CREATE", by: "alice", given: annotated("bob"), want: "alice", warns: true},
		"a user says who she is":                     {operation: "CREATE", by: "alice", given: annotated("alice"), want: "alice"},
		"the job service creates a job for another":  {operation: "CREATE", by: service, given: annotated("bob"), want: "bob"},
		"the job service creates one without a user": {operation: "CREATE", by: service, given: `{}`, want: none},
		"a service of that name elsewhere": {
			operation: "CREATE", by: "system:serviceaccount:evil:spot-training-operator-job-service", given: annotated("bob"),
			want: "system:serviceaccount:evil:spot-training-operator-job-service", warns: true,
		},
		"an update changes nothing":         {operation: "UPDATE", by: "bob", before: annotated("alice"), given: annotated("alice"), want: "alice"},
		"an update changes the user":        {operation: "UPDATE", by: "bob", before: annotated("alice"), given: annotated("bob"), want: "alice", warns: true},
		"an update leaves the user out":     {operation: "UPDATE", by: "bob", before: annotated("alice"), given: `{}`, want: "alice"},
		"an update adds a user":             {operation: "UPDATE", by: "bob", before: `{}`, given: annotated("bob"), want: none, warns: true},
		"the job service changes it either": {operation: "UPDATE", by: service, before: annotated("alice"), given: annotated("bob"), want: "alice", warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: test.operation, UserInfo: authenticationv1.UserInfo{Username: test.by},
				Object: raw(test.given), OldObject: raw(test.before),
			}}

			patches, warnings := Note(request, []string{service})

			assert.Equal(t, test.warns, len(warnings) > 0, "%v", warnings)
			annotations, ok := annotationsOf(request.Object.Raw)
			require.True(t, ok)
			for _, operation := range patches {
				annotations = apply(t, annotations, operation)
			}
			assert.Equal(t, test.want, annotations[aiplatformv1alpha1.AnnotationUser])
		})
	}
}

func TestWhatIsNoObjectIsLetThrough(t *testing.T) {
	patches, warnings := Note(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: "CREATE", UserInfo: authenticationv1.UserInfo{Username: "alice"},
		Object: runtime.RawExtension{Raw: []byte(`{"metadata": {"annotations": {"a": 1}}}`)},
	}}, nil)
	assert.Empty(t, patches)
	assert.Empty(t, warnings)
}

// apply does to annotations what the API server does with an operation of RFC 6902.
func apply(t *testing.T, annotations map[string]string, operation jsonpatch.Operation) map[string]string {
	t.Helper()
	if operation.Path == "/metadata/annotations" {
		require.Equal(t, "add", operation.Operation)
		return operation.Value.(map[string]string)
	}
	require.Equal(t, "/metadata/annotations/aiplatform.example.com~1user", operation.Path)
	require.NotNil(t, annotations, "a value cannot be added to what is not there")
	_, there := annotations[aiplatformv1alpha1.AnnotationUser]
	if operation.Operation == "remove" {
		require.True(t, there)
		delete(annotations, aiplatformv1alpha1.AnnotationUser)
		return annotations
	}
	require.Equal(t, there, operation.Operation == "replace")
	annotations[aiplatformv1alpha1.AnnotationUser] = operation.Value.(string)
	return annotations
}

func annotated(user string) string {
	return `{"annotations": {"` + aiplatformv1alpha1.AnnotationUser + `": "` + user + `"}}`
}

func raw(metadata string) runtime.RawExtension {
	if metadata == "" {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: []byte(`{"metadata": ` + metadata + `}`)}
}
