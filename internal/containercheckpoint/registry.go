package containercheckpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Insecure are the registries, host or host:port, that may be spoken to without encryption. Those on this machine always may.
type Insecure []string

var errPlain = errors.New("speaks no TLS, and a checkpoint holds whatever the processes had in memory: give the registry a certificate, " +
	"or allow plain HTTP by --insecure-registry of the checkpoint agent")

// allows plain HTTP to a host, which may have a port.
func (i Insecure) allows(host string) bool {
	bare, _, err := net.SplitHostPort(host)
	if err != nil {
		bare = host
	}
	ip := net.ParseIP(strings.Trim(bare, "[]"))
	return bare == "localhost" || (ip != nil && ip.IsLoopback()) || slices.Contains(i, host) || slices.Contains(i, bare)
}

// options for the name of an image.
func (i Insecure) options(image string) []name.Option {
	host, _, _ := strings.Cut(image, "/")
	options := []name.Option{name.StrictValidation}
	if i.allows(host) {
		options = append(options, name.Insecure)
	}
	return options
}

// guard keeps requests from going out without encryption. The library would try that with any private address.
func (i Insecure) guard(inner http.RoundTripper) http.RoundTripper {
	return guard{inner: inner, insecure: i}
}

type guard struct {
	inner    http.RoundTripper
	insecure Insecure
}

func (g guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" && !g.insecure.allows(request.URL.Host) {
		return nil, fmt.Errorf("registry %s %w", request.URL.Host, errPlain)
	}
	return g.inner.RoundTrip(request)
}

// credentials reads the Secret of the registry.
func (w *work) credentials(ctx context.Context) (authn.Keychain, error) {
	key := w.backup.Spec.Registry.Secret
	if key.Name == "" {
		return keychain{}, nil
	}
	secret := &corev1.Secret{}
	err := w.agent.Direct.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("spec.registry.secretRef: there is no Secret %s in namespace %s: create it with kubectl create secret docker-registry",
			key.Name, key.Namespace)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("spec.registry.secretRef: the checkpoint agent may not read Secrets in namespace %s: run kubectl -n %s create rolebinding "+
			"spot-checkpoint-agent-registry --clusterrole=spot-checkpoint-agent-registry --serviceaccount=spot-checkpoint-agent:spot-checkpoint-agent",
			key.Namespace, key.Namespace)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	return readKeychain(secret)
}

// keychain are the credentials of a Secret, by registry.
type keychain map[string]authn.AuthConfig

func readKeychain(secret *corev1.Secret) (authn.Keychain, error) {
	text, ok := secret.Data[corev1.DockerConfigJsonKey]
	if secret.Type != corev1.SecretTypeDockerConfigJson || !ok {
		return nil, fmt.Errorf("spec.registry.secretRef: Secret %s is of type %s without %s: make one of type %s with kubectl create secret docker-registry",
			secret.Name, secret.Type, corev1.DockerConfigJsonKey, corev1.SecretTypeDockerConfigJson)
	}
	var file struct{ Auths map[string]authn.AuthConfig }
	if err := json.Unmarshal(text, &file); err != nil {
		// The parser's words may hold parts of what it read.
		return nil, fmt.Errorf("spec.registry.secretRef: %s of Secret %s cannot be read: create it again with kubectl create secret docker-registry",
			corev1.DockerConfigJsonKey, secret.Name)
	}
	keys := keychain{}
	for server, auth := range file.Auths {
		keys[serverName(server)] = auth
	}
	return keys, nil
}

// serverName is a registry, or a repository in it, without what is around it in files of some tools.
func serverName(server string) string {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	server = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(server, "/"), "/v1"), "/v2")
	if server == "docker.io" {
		return name.DefaultRegistry
	}
	return server
}

// Resolve finds the credentials of the longest part of a repository's name that has some.
func (k keychain) Resolve(resource authn.Resource) (authn.Authenticator, error) {
	for part := serverName(resource.String()); part != "."; part = path.Dir(part) {
		if config, ok := k[part]; ok {
			return authn.FromConfig(config), nil
		}
	}
	return authn.Anonymous, nil
}
