package preemption_test

import (
	"testing"

	"github.com/dcnlab/spot-training-operator/test/apiserver"
)

var api = apiserver.New()

func TestMain(m *testing.M) { api.Main(m) }
