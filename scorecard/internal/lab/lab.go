// Package lab is what a scorecard test works with: the bundle, the cluster, and a namespace in which it may make
// objects that are removed again after it.
package lab

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/bundle"
)

// Lab belongs to one test.
type Lab struct {
	client.Client

	// Bundle under test.
	Bundle bundle.Bundle
	// Config is how the cluster is reached, with the credentials of the test's ServiceAccount.
	Config *rest.Config
	// Discovery tells which kinds the API server serves.
	Discovery discovery.DiscoveryInterface
	// Namespace is where the test may make objects.
	Namespace string

	log  strings.Builder
	made []client.Object
}

// Open connects to the cluster. It returns an error when the cluster cannot be reached.
func Open(config *rest.Config, tested bundle.Bundle, namespace string) (*Lab, error) {
	if namespace == "" {
		return nil, errors.New("the namespace to test in is not known: the scorecard sets SCORECARD_NAMESPACE, --namespace names another")
	}
	config = rest.CopyConfig(config)
	// What the API server warns of would end up in the result, which is read from the pod's log.
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mlv1.AddToScheme, operatorsv1alpha1.AddToScheme, operatorsv2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the API types: %w", err)
		}
	}
	l := &Lab{Bundle: tested, Config: config, Namespace: namespace}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if err := l.connect(transport, scheme); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Lab) connect(transport *http.Client, scheme *runtime.Scheme) error {
	mapper, err := apiutil.NewDynamicRESTMapper(l.Config, transport)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	l.Client, err = client.New(l.Config, client.Options{HTTPClient: transport, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	l.Discovery, err = discovery.NewDiscoveryClientForConfigAndClient(l.Config, transport)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	return nil
}

// Logf adds a line to the test's log, which the scorecard shows.
func (l *Lab) Logf(format string, args ...any) {
	fmt.Fprintf(&l.log, "%s %s\n", time.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// Log returns the lines so far.
func (l *Lab) Log() string { return l.log.String() }
