// Package creator notes in an annotation who creates a job, because the limits of queues count what each user's jobs hold: only the
// request says who that is.
package creator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Note patches the one annotation of the object as it was sent, so that nothing else of what the user wrote is put differently: to
// the user who creates it, or, by an update, to what it was before. Trusted are the names of users who may say for whom they create it.
// Warnings tell a user whose own words were replaced.
func Note(request admission.Request, trusted []string) (patches []jsonpatch.Operation, warnings []string) {
	annotations, ok := annotationsOf(request.Object.Raw)
	if !ok { // the API server says better what is wrong
		return nil, nil
	}
	given, isGiven := annotations[aiplatformv1alpha1.AnnotationUser]
	want, why := "", ""
	switch request.Operation {
	case admissionv1.Create:
		want, why = request.UserInfo.Username, "it is the user who creates it"
		if slices.Contains(trusted, request.UserInfo.Username) {
			want = given // empty: no user's
		}
	case admissionv1.Update:
		before, _ := annotationsOf(request.OldObject.Raw)
		want, why = before[aiplatformv1alpha1.AnnotationUser], "it cannot be changed"
	default:
		return nil, nil
	}
	if given == want && (isGiven || want == "") {
		return nil, nil
	}
	if given != "" && given != want {
		warnings = []string{fmt.Sprintf("metadata.annotations[%s]: is %q, and not %q as written: %s",
			aiplatformv1alpha1.AnnotationUser, want, given, why)}
	}
	return patch(annotations != nil, isGiven, want), warnings
}

// patch of an object that has annotations, and this one among them, or not.
func patch(annotated, this bool, want string) []jsonpatch.Operation {
	path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(aiplatformv1alpha1.AnnotationUser)
	switch {
	case want == "":
		return []jsonpatch.Operation{jsonpatch.NewOperation("remove", path, nil)}
	case !annotated:
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", "/metadata/annotations",
			map[string]string{aiplatformv1alpha1.AnnotationUser: want})}
	case this:
		return []jsonpatch.Operation{jsonpatch.NewOperation("replace", path, want)}
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("add", path, want)}
}

// annotationsOf are those of an object in JSON; nil when it has none, false when they cannot be read.
func annotationsOf(raw []byte) (map[string]string, bool) {
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return nil, false
	}
	return object.Metadata.Annotations, true
}
