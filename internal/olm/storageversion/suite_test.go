package storageversion

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(apiextensionsv1.AddToScheme)
	api    = apiserver.New(func(env *envtest.Environment) { env.Scheme = scheme })
)

func TestMain(m *testing.M) { api.Main(m) }
