package nodeagent

import (
	"testing"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(spotv1alpha1.AddToScheme)
	api    = apiserver.New(apiserver.OwnCRDs)
)

func TestMain(m *testing.M) { api.Main(m) }
