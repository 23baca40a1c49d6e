package trainingjob

import (
	"bytes"
	"context"
	"encoding/json"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/creator"
)

// defaulter fills in the defaults that an upgrade of the operator would change: the image. All others belong to the
// API and are the same in every version of it. And it notes who creates a job, whose limits in its AIJobQueue count. It patches
// single fields of the object as it was sent, so that nothing else of what the user wrote is put differently.
type defaulter struct {
	defaultImage func(mlv1.Framework) string
}

// Handle implements admission.Handler. Objects that it cannot make sense of are let through: the schema, which is
// checked after it, says better what is wrong.
func (d *defaulter) Handle(_ context.Context, request admission.Request) admission.Response {
	spec := specOf(request.Object.Raw)
	if spec == nil || request.SubResource != "" {
		return admission.Allowed("")
	}
	patches, warnings := creator.Note(request, nil)
	var image string
	switch request.Operation {
	case admissionv1.Create:
		if causes := unreadableQuantities(spec); len(causes) > 0 {
			return refusal(causes)
		}
		framework, _ := spec["framework"].(string)
		image = d.defaultImage(mlv1.Framework(framework))
	case admissionv1.Update:
		// An update by the manifest that the object was created from leaves the image out again.
		image, _ = specOf(request.OldObject.Raw)["image"].(string)
	}
	if _, named := spec["image"]; !named && image != "" {
		patches = append(patches, jsonpatch.NewOperation("add", "/spec/image", image))
	}
	return admission.Patched("", patches...).WithWarnings(warnings...)
}

// specOf is the spec of an object in JSON, with numbers as they were written; nil when there is none.
func specOf(raw []byte) map[string]any {
	var object struct {
		Spec any `json:"spec"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil
	}
	spec, _ := object.Spec.(map[string]any)
	return spec
}
