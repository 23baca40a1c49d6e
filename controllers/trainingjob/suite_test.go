package trainingjob

import (
	"testing"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme     = apiserver.Scheme(mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)
	api        = apiserver.New(apiserver.OwnCRDs)
	eventually = apiserver.Await
)

func TestMain(m *testing.M) { api.Main(m) }
