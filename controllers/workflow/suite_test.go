package workflow

import (
	"testing"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(aiplatformv1alpha1.AddToScheme)
	api    = apiserver.New(apiserver.OwnCRDs)
	await  = apiserver.Await
)

func TestMain(m *testing.M) { api.Main(m) }
