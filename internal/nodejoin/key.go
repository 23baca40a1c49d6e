package nodejoin

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/crypto/ssh"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// KeyPair is a key to log in to instances with.
type KeyPair struct{ signer ssh.Signer }

// AuthorizedKey is the public half, in the form of a line of authorized_keys without a comment.
func (k *KeyPair) AuthorizedKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.signer.PublicKey())))
}

// parseKey reads a private key.
func parseKey(private []byte) (*KeyPair, error) {
	signer, err := ssh.ParsePrivateKey(private)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return nil, errors.New("is protected by a passphrase: store it without one (ssh-keygen -p)")
	}
	if err != nil {
		// The error of the library may quote what it read.
		return nil, errors.New("is no private key in PEM form: make one with ssh-keygen -t ed25519 -N ''")
	}
	return &KeyPair{signer}, nil
}

// KeyFromSecret reads the key pair of a user: the key ssh-privatekey of the Secret that privateKeySecretRef names.
func KeyFromSecret(ctx context.Context, reader client.Reader, namespace, name string) (*KeyPair, error) {
	const field = "spec.kubeadmJoinConfig.ssh.privateKeySecretRef"
	secret := &corev1.Secret{}
	if found, err := child.Find(ctx, reader, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	} else if !found {
		return nil, refuse(reasons.SecretNotFound, "%s: there is no Secret %s in namespace %s: create it with the key %s, or remove the field and "+
			"the operator makes a key pair for each instance", field, name, namespace, corev1.SSHAuthPrivateKey)
	}
	private, ok := secret.Data[corev1.SSHAuthPrivateKey]
	if !ok {
		return nil, refuse(reasons.SecretNotFound, "%s: Secret %s has no key %s: put the private key there", field, name, corev1.SSHAuthPrivateKey)
	}
	key, err := parseKey(private)
	if err != nil {
		return nil, refuse(reasons.SecretNotFound, "%s: Secret %s: key %s %v", field, name, corev1.SSHAuthPrivateKey, err)
	}
	return key, nil
}

// Keys makes a key pair for each instance and keeps it in a Secret of the operator's own namespace, so that another manager
// can log in after this one has crashed.
type Keys struct {
	// Client creates and deletes.
	Client client.Client
	// Reader reads from the API server itself.
	Reader client.Reader
	// Namespace is the operator's own.
	Namespace string
}

// Make returns the key pair of an instance; a second call returns the same one.
func (k Keys) Make(ctx context.Context, instance Instance) (*KeyPair, error) {
	secret, err := k.find(ctx, instance)
	if err != nil {
		return nil, err
	}
	if secret.UID != "" {
		key, err := parseKey(secret.Data[corev1.SSHAuthPrivateKey])
		if err != nil {
			return nil, fmt.Errorf("SSH key for instance %s: Secret %s: key %s %w; delete the Secret", instance.Name, secret.Name, corev1.SSHAuthPrivateKey, err)
		}
		return key, nil
	}
	private, err := newPrivateKey()
	if err != nil {
		return nil, fmt.Errorf("make an SSH key: %w", err)
	}
	secret.Type = corev1.SecretTypeSSHAuth
	secret.Data = map[string][]byte{corev1.SSHAuthPrivateKey: private}
	if err := k.Client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("keep the SSH key for instance %s: %w", instance.Name, err)
	}
	return parseKey(private)
}

// Remove deletes the key pair of an instance. It is no error when there is none.
func (k Keys) Remove(ctx context.Context, instance Instance) error {
	secret, err := k.find(ctx, instance)
	return removeFound(ctx, k.Client, secret, err)
}

// find reads the Secret of an instance, or returns one without a UID to be made.
func (k Keys) find(ctx context.Context, instance Instance) (*corev1.Secret, error) {
	// Two namespaces may have a SpotInstanceVM of one name, whose instances may have one name in two projects.
	found, err := findSecret(ctx, k.Reader, ownSecret(instance, k.Namespace, fmt.Sprintf("%s-%s-ssh", instance.Name, tokenID(instance, 0))))
	switch {
	case err != nil:
		return nil, fmt.Errorf("SSH key for instance %s: %w", instance.Name, err)
	case !isOf(found, instance):
		return nil, fmt.Errorf("SSH key for instance %s: Secret %s/%s belongs to something else: remove or rename it", instance.Name, k.Namespace, found.Name)
	}
	return found, nil
}

func newPrivateKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "spot-training-operator")
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(block), nil
}
