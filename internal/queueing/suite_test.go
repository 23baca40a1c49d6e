package queueing_test

import (
	"testing"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(aiplatformv1alpha1.AddToScheme)
	server = apiserver.New(apiserver.OwnCRDs)
)

func TestMain(m *testing.M) { server.Main(m) }
