package nodenotice_test

import (
	"testing"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var api = apiserver.New()

func TestMain(m *testing.M) { api.Main(m) }
