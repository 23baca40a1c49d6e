// Package apiserver gives the tests of a package one real API server, from envtest, which the first of them that needs it starts.
package apiserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Server is an API server that tests share. Its methods are safe for concurrent use.
type Server struct {
	options []Option

	once   sync.Once
	env    *envtest.Environment
	config *rest.Config
	err    error
}

// Option changes the environment before it is started.
type Option func(*envtest.Environment)

// OwnCRDs has the API server serve the operator's kinds.
func OwnCRDs(env *envtest.Environment) {
	env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, filepath.Join(Root(), "config", "crd", "bases"))
	env.ErrorIfCRDPathMissing = true
}

// CRDs has it serve the kinds of a folder.
func CRDs(folder string) Option {
	return func(env *envtest.Environment) { env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, folder) }
}

// Flag sets a flag of the API server.
func Flag(name, value string) Option {
	return func(env *envtest.Environment) { env.ControlPlane.GetAPIServer().Configure().Set(name, value) }
}

// New returns an API server that is not started yet.
func New(options ...Option) *Server { return &Server{options: options} }

// Main runs the tests of a package, as its TestMain, stops the API server if they started it, and ends the process.
func (s *Server) Main(m *testing.M) {
	ctrl.SetLogger(logr.Discard()) // errors are part of many tests, and would only hide what failed
	code := m.Run()
	if s.env != nil {
		if err := s.env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}
	os.Exit(code)
}

// MainStarted is Main for a package all of whose tests need the API server: it is started and prepared before the first of them.
func (s *Server) MainStarted(m *testing.M, prepare func(*rest.Config) error) {
	s.once.Do(func() { s.err = s.start() })
	if s.err == nil {
		s.err = prepare(rest.CopyConfig(s.config))
	}
	if s.err != nil {
		fmt.Fprintln(os.Stderr, "prepare the API server of the tests:", s.err)
		if s.env != nil {
			_ = s.env.Stop()
		}
		os.Exit(1)
	}
	s.Main(m)
}

// Config returns how to reach the API server, without a limit to requests. It starts it if need be.
func (s *Server) Config(t testing.TB) *rest.Config {
	t.Helper()
	s.once.Do(func() { s.err = s.start() })
	require.NoError(t, s.err)
	return rest.CopyConfig(s.config)
}

// Etcd returns the URL of the database that the API server keeps its objects in, once it is started.
func (s *Server) Etcd() string { return s.env.ControlPlane.Etcd.URL.String() }

// Kubeconfig returns an administrator's, once it is started.
func (s *Server) Kubeconfig() []byte { return s.env.KubeConfig }

// KubeconfigOf returns that of a user in groups, once it is started.
func (s *Server) KubeconfigOf(t testing.TB, user string, groups ...string) []byte {
	t.Helper()
	added, err := s.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	require.NoError(t, err)
	kubeconfig, err := added.KubeConfig()
	require.NoError(t, err)
	return kubeconfig
}

// Start starts an API server for one test, and stops it with the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s := New(options...)
	t.Cleanup(func() {
		if s.env != nil {
			assert.NoError(t, s.env.Stop())
		}
	})
	s.Config(t)
	return s
}

func (s *Server) start() error {
	assets := Binaries()
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(assets, program)); err != nil {
			return fmt.Errorf("these tests need a real API server: %w: run `make test`, which builds etcd and kube-apiserver, "+
				"or set KUBEBUILDER_ASSETS to a folder that has both", err)
		}
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets, ControlPlaneStartTimeout: 3 * time.Minute, ControlPlaneStopTimeout: time.Minute}
	for _, change := range s.options {
		change(env)
	}
	// It must be stopped even when only half of it came up.
	s.env = env
	var err error
	if s.config, err = env.Start(); err != nil {
		return fmt.Errorf("start the API server of %s: %w", assets, err)
	}
	s.config.QPS = -1
	return nil
}

// Await waits for something to happen on the API server, for three minutes at most.
func Await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true,
		func(context.Context) (bool, error) { return happened(), nil })
	require.NoError(t, err, "%s did not happen", what)
}

// Binaries is the folder of etcd, kube-apiserver and kubectl.
func Binaries() string {
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		return folder
	}
	return filepath.Join(Root(), ".localcluster", "bin")
}

// Root is the top folder of the repository.
func Root() string {
	folder, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			break
		}
		folder = filepath.Dir(folder)
	}
	panic("the tests run outside of the repository")
}

// Scheme has Kubernetes' own kinds and those that the functions add.
func Scheme(add ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, addTo := range append(add, clientgoscheme.AddToScheme) {
		if err := addTo(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}
