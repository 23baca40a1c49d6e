package operatorcondition

import (
	"testing"

	"github.com/operator-framework/api/crds"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(operatorsv2.AddToScheme)
	api    = apiserver.New(func(env *envtest.Environment) { env.CRDs = append(env.CRDs, crds.OperatorCondition()) })
)

func TestMain(m *testing.M) { api.Main(m) }
