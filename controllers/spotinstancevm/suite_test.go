package spotinstancevm

import (
	"testing"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme     = apiserver.Scheme(spotv1alpha1.AddToScheme, mlv1.AddToScheme)
	api        = apiserver.New(apiserver.OwnCRDs)
	eventually = apiserver.Await
)

func TestMain(m *testing.M) { api.Main(m) }
