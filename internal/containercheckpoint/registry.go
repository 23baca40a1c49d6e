package containercheckpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dcnlab/spot-training-operator/internal/registry/keychain"
)

// Insecure are the registries, host or host:port, that may be spoken to without encryption, and that may be on this machine.
type Insecure []string

var errPlain = errors.New("speaks no TLS, and a checkpoint holds whatever the processes had in memory: give the registry a certificate, " +
	"or allow plain HTTP by --insecure-registry of the checkpoint agent")

// allows plain HTTP to a host, which may have a port.
func (i Insecure) allows(host string) bool {
	bare, _, err := net.SplitHostPort(host)
	if err != nil {
		bare = host
	}
	return slices.Contains(i, host) || slices.Contains(i, bare)
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

// transport sends the requests of a push to a registry. The agent is in the network of its node, and who writes a CheckpointBackup names the
// registry, which answers where to go on: neither may reach what only the node reaches.
func (i Insecure) transport(registry string) *guard {
	dialer := &net.Dialer{Timeout: dialTimeout}
	if !i.allows(registry) {
		dialer.Control = refuseLocal
	}
	inner := http.DefaultTransport.(*http.Transport).Clone()
	inner.DialContext = dialer.DialContext
	return &guard{inner: inner, insecure: i, registry: registry}
}

// dialTimeout bounds how long a registry may take to answer at all.
const dialTimeout = 30 * time.Second

var (
	errLocal     = errors.New("is an address of the node itself or of its metadata server, which are no registries (--insecure-registry allows one on the node)")
	errElsewhere = errors.New("is not the registry, which sent the checkpoint there: it is sent to the registry of its image alone")
)

// refuseLocal refuses addresses that are something else on each machine, before a connection is opened.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	ip := at.Addr().Unmap()
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip == metadataAddress || isOfNode(ip) {
		return fmt.Errorf("%s %w", ip, errLocal)
	}
	return nil
}

// isOfNode says whether the machine itself has an address.
func isOfNode(ip netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addresses, func(address net.Addr) bool {
		prefix, err := netip.ParsePrefix(address.String())
		return err == nil && prefix.Addr().Unmap() == ip
	})
}

// metadataAddress is that of the metadata server in IPv6, on machines of Amazon; it is link-local nearly everywhere else.
var metadataAddress = netip.MustParseAddr("fd00:ec2::254")

type guard struct {
	inner    *http.Transport
	insecure Insecure
	registry string
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	// The library would try plain HTTP with any private address.
	if request.URL.Scheme != "https" && !g.insecure.allows(request.URL.Host) {
		return nil, fmt.Errorf("registry %s %w", request.URL.Host, errPlain)
	}
	if request.Method != http.MethodGet && request.Method != http.MethodHead && request.URL.Host != g.registry {
		return nil, fmt.Errorf("%s %w", request.URL.Host, errElsewhere)
	}
	return g.inner.RoundTrip(request)
}

// CloseIdleConnections ends what is left of a push.
func (g *guard) CloseIdleConnections() { g.inner.CloseIdleConnections() }

// credentials reads the Secret of the registry.
func (w *work) credentials(ctx context.Context) (authn.Keychain, error) {
	key := w.backup.Spec.Registry.Secret
	if key.Name == "" {
		return keychain.Keychain{}, nil
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

func readKeychain(secret *corev1.Secret) (authn.Keychain, error) {
	text, ok := secret.Data[corev1.DockerConfigJsonKey]
	if secret.Type != corev1.SecretTypeDockerConfigJson || !ok {
		return nil, fmt.Errorf("spec.registry.secretRef: Secret %s is of type %s without %s: make one of type %s with kubectl create secret docker-registry",
			secret.Name, secret.Type, corev1.DockerConfigJsonKey, corev1.SecretTypeDockerConfigJson)
	}
	keys, err := keychain.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("spec.registry.secretRef: %s of Secret %s cannot be read: create it again with kubectl create secret docker-registry",
			corev1.DockerConfigJsonKey, secret.Name)
	}
	return keys, nil
}
