package nodejoin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// Keys of the Secret that tokenSecretRef names.
const (
	KeyToken                = "token"
	KeyCACertHash           = "ca-cert-hash"
	KeyControlPlaneEndpoint = "control-plane-endpoint"
)

// createSecret tells where the values of the Secret come from.
const createSecret = "kubeadm token create --print-join-command prints all three" //nolint:gosec // advice in an error

// Discover finds out what an instance must know of the cluster: each from the SpotInstanceVM, else from the Secret of
// tokenSecretRef, which is in namespace, else from the ConfigMap cluster-info that kubeadm leaves in kube-public. The
// token is empty when no Secret is named. reader asks the API server itself.
func Discover(ctx context.Context, reader client.Reader, namespace string, config spotv1alpha1.KubeadmJoinConfig) (Cluster, error) {
	cluster := Cluster{Endpoint: config.ControlPlaneEndpoint, CACertHash: config.CACertHash}
	if config.TokenSecretRef != "" {
		if err := cluster.fromSecret(ctx, reader, client.ObjectKey{Namespace: namespace, Name: config.TokenSecretRef}); err != nil {
			return Cluster{}, err
		}
	}
	if cluster.Endpoint == "" || cluster.CACertHash == "" {
		if err := cluster.fromClusterInfo(ctx, reader); err != nil {
			return Cluster{}, err
		}
	}
	return cluster, nil
}

// fromSecret completes what is missing. Values of the Secret do not show in errors.
func (c *Cluster) fromSecret(ctx context.Context, reader client.Reader, key client.ObjectKey) error {
	mistake := func(format string, args ...any) error {
		return refuse(reasons.SecretNotFound, "spec.kubeadmJoinConfig.tokenSecretRef: "+format, args...)
	}
	secret := &corev1.Secret{}
	if found, err := child.Find(ctx, reader, key, secret); err != nil {
		return fmt.Errorf("spec.kubeadmJoinConfig.tokenSecretRef: %w", err)
	} else if !found {
		return mistake("there is no Secret %s in namespace %s: create it with the keys %s, %s and %s (%s), or remove the field and "+
			"the operator makes tokens itself", key.Name, key.Namespace, KeyToken, KeyCACertHash, KeyControlPlaneEndpoint, createSecret)
	}
	value := func(name string) string { return strings.TrimSpace(string(secret.Data[name])) }
	c.Token = value(KeyToken)
	if !bootstraputil.IsValidBootstrapToken(c.Token) {
		return mistake("key %s of Secret %s is missing or not of the form abcdef.0123456789abcdef: %s", KeyToken, key.Name, createSecret)
	}
	hash, endpoint := value(KeyCACertHash), value(KeyControlPlaneEndpoint)
	if c.CACertHash == "" && hash != "" && !validHash.MatchString(hash) {
		return mistake("key %s of Secret %s is not sha256: followed by 64 hexadecimal digits: %s", KeyCACertHash, key.Name, createSecret)
	}
	if c.Endpoint == "" && endpoint != "" && !isEndpoint(endpoint) {
		return mistake("key %s of Secret %s is not host:port: write for example 10.0.0.2:6443, without https://", KeyControlPlaneEndpoint, key.Name)
	}
	c.complete(endpoint, hash)
	return nil
}

// refuse says what a user must correct.
func refuse(reason, format string, args ...any) error {
	return &child.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// complete sets what is missing.
func (c *Cluster) complete(endpoint, hash string) {
	c.Endpoint, c.CACertHash = cmp.Or(c.Endpoint, endpoint), cmp.Or(c.CACertHash, hash)
}

// fromClusterInfo completes what is missing.
func (c *Cluster) fromClusterInfo(ctx context.Context, reader client.Reader) error {
	key := client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}
	info := &corev1.ConfigMap{}
	if found, err := child.Find(ctx, reader, key, info); err != nil {
		return err
	} else if !found {
		return refuse(reasons.SecretNotFound, "there is no ConfigMap %s, so this cluster was not made by kubeadm: give %s, %s and %s in the Secret of "+
			"spec.kubeadmJoinConfig.tokenSecretRef", key, KeyToken, KeyCACertHash, KeyControlPlaneEndpoint)
	}
	endpoint, hash, err := parseClusterInfo(info.Data[bootstrapapi.KubeConfigKey])
	if err != nil {
		return refuse(reasons.InvalidSpec, "ConfigMap %s: %v: correct it, or give spec.kubeadmJoinConfig.controlPlaneEndpoint and caCertHash", key, err)
	}
	c.complete(endpoint, hash)
	return nil
}

// parseClusterInfo takes the endpoint of the API server and the hash of the root certificate out of a kubeconfig.
func parseClusterInfo(kubeconfig string) (endpoint, hash string, err error) {
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return "", "", fmt.Errorf("key %s is no kubeconfig: %w", bootstrapapi.KubeConfigKey, err)
	}
	// kubeadm writes one cluster, without a name.
	for _, cluster := range config.Clusters {
		server, err := url.Parse(cluster.Server)
		if err != nil || server.Hostname() == "" {
			return "", "", errors.New("its server is not an address")
		}
		certificates, err := cert.ParseCertsPEM(cluster.CertificateAuthorityData)
		if err != nil {
			return "", "", fmt.Errorf("its certificate authority: %w", err)
		}
		return net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443")), CACertHash(certificates[0]), nil
	}
	return "", "", errors.New("it names no cluster")
}

// CACertHash is the hash of a certificate's public key, by which kubeadm pins it.
func CACertHash(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var validHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func isEndpoint(endpoint string) bool {
	host, port, err := net.SplitHostPort(endpoint)
	return err == nil && host != "" && port != "" && !strings.ContainsAny(endpoint, "/ ")
}
