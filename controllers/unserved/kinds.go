package unserved

import (
	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Kind is a kind that the API server serves and that this version does not act on.
type Kind struct {
	// Name of the kind, for example AIJob.
	Name string
	// New makes an empty object.
	New func() Object
}

// Kinds are the kinds without a controller in this version. A kind leaves the list when it gets one.
func Kinds() []Kind {
	return []Kind{
		{"AIJob", func() Object { return &aiplatformv1alpha1.AIJob{} }},
	}
}
