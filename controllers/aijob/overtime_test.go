package aijob

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Objects that were stored before the field had a maximum.
func TestATimeLimitOfAges(t *testing.T) {
	w := worldOf(job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.TimeoutSeconds = ptr.To[int64](math.MaxInt64) })).running("a")
	d := plan(w.at(time.Hour).observed)
	assert.Equal(t, "Running Running", short(d.status))
	assert.Positive(t, d.again)
}
