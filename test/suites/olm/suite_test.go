//go:build olm

// Package olm tests how the Operator Lifecycle Manager (OLM) installs, upgrades and removes the operator, on a live
// cluster with the real OLM: real catalogs, real bundles, a job that really trains meanwhile. `make olm-e2e` runs it.
package olm

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	operatorNamespace = "spot-training-operator-system"
	packageName       = "spot-training-operator"
	poll              = 300 * time.Millisecond
	// patience is how long a step may take on a slow machine before the test gives up.
	patience = 5 * time.Minute
)

// cluster is the connection to the live cluster.
var cluster struct {
	client.Client

	config *rest.Config
	typed  kubernetes.Interface
}

func TestMain(m *testing.M) {
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need a cluster with OLM and the images in its registry (make olm-e2e brings all):", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	// OLM warns of settings of its own objects that only it could change.
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, mlv1.AddToScheme, apiextensionsv1.AddToScheme,
		operatorsv1.AddToScheme, operatorsv1alpha1.AddToScheme, operatorsv2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	cluster.config = config
	if cluster.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	cluster.typed, err = kubernetes.NewForConfig(config)
	return err
}

// eventually waits until the check holds. An error of the check is told when the time is over.
func eventually(t *testing.T, what string, check func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(ctx context.Context) (bool, error) {
		met, err := check(ctx)
		last = err
		return met && err == nil, nil
	})
	require.NoError(t, err, "waiting until %s: %v", what, last)
}

// env is a variable that hack/olm-e2e.sh sets.
func env(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	require.NotEmpty(t, value, "%s is not set: run this by make olm-e2e", name)
	return value
}
