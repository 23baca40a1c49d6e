package workerpool

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/runner"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

var (
	scheme = apiserver.Scheme(aiplatformv1alpha1.AddToScheme)
	api    = apiserver.New(apiserver.OwnCRDs, func(env *envtest.Environment) {
		// Tokens for the job service are as good as the API server says that they are.
		env.ControlPlane.GetAPIServer().Configure().Append("api-audiences", "https://kubernetes.default.svc", Audience)
	})
)

func TestMain(m *testing.M) { api.Main(m) }

var reviewer struct {
	once    sync.Once
	cluster *runner.Cluster
	err     error
}

// reviews is how the job service asks whose a token is and what he may do.
func reviews(t *testing.T) *runner.Cluster {
	t.Helper()
	reviewer.once.Do(func() {
		reviewer.cluster, reviewer.err = runner.NewCluster(api.Config(t), runner.Options{QPS: -1})
		if reviewer.err == nil {
			go func() { _ = reviewer.cluster.Run(context.Background()) }() // it ends with the tests' process
		}
	})
	require.NoError(t, reviewer.err)
	return reviewer.cluster
}
