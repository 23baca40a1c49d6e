// Package cluster is what a scorecard test works with: the operator's bundle, the cluster, a namespace in which the test may
// create objects, and the result that it reports.
package cluster

import (
	"context"
	"errors"
	"fmt"
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

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// Env is the environment of one test. Objects that the test creates in it are deleted after the test.
type Env struct {
	client.Client

	// Context ends when the test is stopped, or has taken too long.
	Context context.Context
	// Bundle under test.
	Bundle Bundle
	// Config reaches the cluster with the credentials of the test's ServiceAccount.
	Config *rest.Config
	// Discovery lists the kinds that the API server serves.
	Discovery discovery.DiscoveryInterface
	// Namespace is where the test may create objects.
	Namespace string
	// Test is the test's name, a label of the objects that it creates.
	Test string

	log     strings.Builder
	created []client.Object
}

// Open connects to the cluster. It returns an error when the cluster cannot be reached.
func Open(config *rest.Config, tested Bundle, namespace string) (*Env, error) {
	if namespace == "" {
		return nil, errors.New("the namespace to test in is not known: the scorecard sets SCORECARD_NAMESPACE, --namespace names another")
	}
	env := &Env{Bundle: tested, Config: rest.CopyConfig(config), Namespace: namespace}
	// Warnings of the API server would end up in the result, which is read from the pod's log.
	env.Config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, mlv1.AddToScheme,
		operatorsv1alpha1.AddToScheme, operatorsv2.AddToScheme)
	if err := add.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the API types: %w", err)
	}
	var err error
	if env.Client, err = client.New(env.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if env.Discovery, err = discovery.NewDiscoveryClientForConfig(env.Config); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return env, nil
}

// stop is the panic by which Check ends a test.
type stop struct{ error }

// Check ends the test with the error; nil goes on. A Failure means that the test failed, any other error that it could not be
// run.
func (env *Env) Check(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// Checkf is Check with what was being done before the error.
func (env *Env) Checkf(err error, doing string, args ...any) {
	if err != nil {
		env.Check(fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), err))
	}
}

// Failf ends the test with a Failure.
func (env *Env) Failf(format string, args ...any) { env.Check(Failf(format, args...)) }

// Run runs a test, or a part of one, and returns the error with which it ended. A panic is one too, so that the log of the
// test's pod always has a result.
func (env *Env) Run(test func(*Env)) (err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case stop:
			err = reason.error
		default:
			err = fmt.Errorf("the test is broken: %v", reason)
		}
	}()
	test(env)
	return nil
}

// Logf adds a line to the test's log, which the scorecard shows.
func (env *Env) Logf(format string, args ...any) {
	fmt.Fprintf(&env.log, "%s %s\n", time.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// Log returns the lines so far.
func (env *Env) Log() string { return env.log.String() }
