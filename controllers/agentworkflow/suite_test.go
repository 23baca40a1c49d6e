package agentworkflow

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/apiserver"
)

var (
	scheme = apiserver.Scheme(aiplatformv1alpha1.AddToScheme)
	api    = apiserver.New(apiserver.OwnCRDs)
)

func TestMain(m *testing.M) { api.Main(m) }

// patience bounds every wait.
const patience = 60 * time.Second

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return happened(), nil })
	require.NoError(t, err, "%s did not happen", what)
}
