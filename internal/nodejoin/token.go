package nodejoin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	bootstrapsecrets "k8s.io/cluster-bootstrap/util/secrets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

const (
	// tokenGroup may ask for the certificate of a node, as config/node-join says. Nothing approves that by itself, other than for the group
	// of kubeadm's own tokens, which get the name of any node.
	tokenGroup = "system:bootstrappers:spot-training-operator"
	// labelInstance is on the Secrets that are made for an instance: its name.
	labelInstance = "training.dcnlab.com/instance"
	// manager is who made them.
	labelManager, manager = "app.kubernetes.io/managed-by", "spot-training-operator"
)

// Tokens makes and revokes bootstrap tokens: one Secret in kube-system for each instance. Kubernetes itself removes one
// that has expired, so that none outlives its time even when the operator is gone.
type Tokens struct {
	// Client creates and deletes.
	Client client.Client
	// Reader reads from the API server itself: a cache of Secrets would hold all of the cluster's.
	Reader client.Reader
	// Now is the time; nil means time.Now.
	Now func() time.Time
}

// Make returns the token of an instance, good for ttl from when it is made. The instance's name says which Secret it is,
// so that a second call, after a crash for example, returns the same token as long as it has not expired.
func (t Tokens) Make(ctx context.Context, instance Instance, ttl time.Duration) (string, error) {
	secret, err := t.find(ctx, instance)
	if err != nil {
		return "", err
	}
	if secret.UID != "" {
		if token, good := t.read(secret); good {
			return token, nil
		}
		if err := removeFound(ctx, t.Client, secret, nil); err != nil {
			return "", err
		}
		secret = ownSecret(instance, metav1.NamespaceSystem, secret.Name)
	}
	// The library makes both parts; the id is another one, by which the Secret is found again.
	random, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return "", fmt.Errorf("make a bootstrap token: %w", err)
	}
	_, random, _ = strings.Cut(random, ".")
	id, _ := bootstrapsecrets.ParseName(secret.Name)
	secret.Type = bootstrapapi.SecretTypeBootstrapToken
	secret.StringData = map[string]string{
		bootstrapapi.BootstrapTokenDescriptionKey: fmt.Sprintf("for instance %s of SpotInstanceVM %s, made by spot-training-operator",
			instance.Name, instance.VM),
		bootstrapapi.BootstrapTokenIDKey:               id,
		bootstrapapi.BootstrapTokenSecretKey:           random,
		bootstrapapi.BootstrapTokenExpirationKey:       t.now().Add(ttl).UTC().Format(time.RFC3339),
		bootstrapapi.BootstrapTokenUsageAuthentication: "true",
		// The instance knows the right cluster-info by the signature with its own token.
		bootstrapapi.BootstrapTokenUsageSigningKey: "true",
		bootstrapapi.BootstrapTokenExtraGroupsKey:  tokenGroup,
	}
	if err := t.Client.Create(ctx, secret); err != nil {
		return "", explainToken(err, instance)
	}
	return bootstraputil.TokenFromIDAndSecret(id, random), nil
}

// Revoke ends the token of an instance. It is no error when there is none.
func (t Tokens) Revoke(ctx context.Context, instance Instance) error {
	secret, err := t.find(ctx, instance)
	return removeFound(ctx, t.Client, secret, err)
}

// find reads the Secret of an instance's token, or returns one without a UID to be made. The id of a token has six
// characters only: when another one has it already, the next is tried.
func (t Tokens) find(ctx context.Context, instance Instance) (*corev1.Secret, error) {
	const attempts = 8
	for attempt := range attempts {
		name := bootstraputil.BootstrapTokenSecretName(tokenID(instance, attempt))
		found, err := findSecret(ctx, t.Reader, ownSecret(instance, metav1.NamespaceSystem, name))
		if err != nil {
			return nil, explainToken(err, instance)
		}
		if isOf(found, instance) {
			return found, nil
		}
	}
	return nil, fmt.Errorf("make a bootstrap token for instance %s: %d tokens of others have the ids that it could have", instance.Name, attempts)
}

// read returns the token in a Secret, unless it has expired or it was changed.
func (t Tokens) read(secret *corev1.Secret) (token string, good bool) {
	// Without a time it would never expire, which none of ours does.
	if bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenExpirationKey) == "" || bootstrapsecrets.HasExpired(secret, t.now()) {
		return "", false
	}
	token = bootstraputil.TokenFromIDAndSecret(
		bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenIDKey), bootstrapsecrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey))
	return token, bootstraputil.IsValidBootstrapToken(token)
}

func (t Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

// tokenID is the attempt-th id that the token of an instance may have.
func tokenID(instance Instance, attempt int) string {
	const letters, length = 36, 6
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", instance.VM, instance.Name, attempt))
	number := new(big.Int).SetBytes(sum[:])
	number.Mod(number, new(big.Int).Exp(big.NewInt(letters), big.NewInt(length), nil))
	return fmt.Sprintf("%0*s", length, number.Text(letters))
}

// labelsOf are on the Secrets that are made for an instance.
func labelsOf(instance Instance) labels.Set {
	return labels.Set{
		labelManager: manager, labelInstance: instance.Name,
		spotv1alpha1.LabelSpotInstanceVM: instance.VM.Name, spotv1alpha1.LabelSpotInstanceVMNamespace: instance.VM.Namespace,
	}
}

// ownSecret is an empty Secret for an instance.
func ownSecret(instance Instance, namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labelsOf(instance)}}
}

// findSecret reads a Secret, or returns the one that is wanted, which has no UID, when there is none.
func findSecret(ctx context.Context, reader client.Reader, wanted *corev1.Secret) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if found, err := child.Find(ctx, reader, client.ObjectKeyFromObject(wanted), secret); err != nil || !found {
		return wanted, err
	}
	return secret, nil
}

// removeFound deletes the Secret that was found, if there is one.
func removeFound(ctx context.Context, c client.Client, secret *corev1.Secret, err error) error {
	if err != nil || secret.UID == "" {
		return err
	}
	return child.Writer{Client: c}.Delete(ctx, secret)
}

// isOf says whether a Secret was made for an instance.
func isOf(secret *corev1.Secret, instance Instance) bool {
	return labels.SelectorFromSet(labelsOf(instance)).Matches(labels.Set(secret.Labels))
}

// explainToken adds the remedy to an error of the API server.
func explainToken(err error, instance Instance) error {
	if apierrors.IsForbidden(err) {
		err = errors.Join(err, errors.New("grant the operator the Role spot-training-operator-node-join in kube-system (config/node-join), "+
			"or make a token yourself and name its Secret in spec.kubeadmJoinConfig.tokenSecretRef"))
	}
	return fmt.Errorf("bootstrap token for instance %s: %w", instance.Name, err)
}
