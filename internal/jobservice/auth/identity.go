package auth

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// The scopes.
const (
	ScopeRead  = "jobs:read"
	ScopeWrite = "jobs:write"
	ScopeWork  = "tasks:work"
)

// Identity is who sends a request. It is shared between requests and must not be changed.
type Identity struct {
	User User
	// Scopes that the token has. A token of Kubernetes has all, because Kubernetes says itself what it is good for.
	Scopes []string
	// Namespaces that the token is good for; AllNamespaces: every one.
	Namespaces    []string
	AllNamespaces bool
	// DefaultNamespace of jobs that name none.
	DefaultNamespace string
	// Queues whose tasks the token is good for; nil: those of every queue.
	Queues []string
	// Kubernetes says that the token is one of this cluster.
	Kubernetes bool
	Expires    time.Time

	key [sha256.Size]byte
}

// Has says whether the token has a scope.
func (i *Identity) Has(scope string) bool { return slices.Contains(i.Scopes, scope) }

// InNamespace says whether the token is good for a namespace; with an empty name: for all of them.
func (i *Identity) InNamespace(namespace string) bool {
	return i.AllNamespaces || namespace != "" && slices.Contains(i.Namespaces, namespace)
}

// Claims of a JWT for the job service.
type Claims struct {
	jwt.RegisteredClaims
	// Scope has the scopes, with blanks between them.
	Scope string `json:"scope,omitempty"`
	// Namespaces that the token is good for; * is every one. Without them it is good for the default namespace.
	Namespaces Texts `json:"namespaces,omitempty"`
	// Namespace of jobs that name none. Default: the first of Namespaces that is not *, else that of the service.
	Namespace string `json:"namespace,omitempty"`
	Groups    Texts  `json:"groups,omitempty"`
	// Queues whose tasks the token is good for. Default: those of every queue.
	Queues Texts `json:"queues,omitempty"`
}

// Texts is a list that may be written as one text.
type Texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *Texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = Texts{one}
		return nil
	}
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("neither a string nor a list of strings: %w", err)
	}
	*t = list
	return nil
}

const reserved = "system:"

func (c *Claims) identity(prefix, defaultNamespace string) (*Identity, error) {
	if c.Subject == "" {
		return nil, &InvalidToken{Reason: "the token lacks the claim sub"}
	}
	// Signers of tokens for this service must not be able to act as Kubernetes' own users.
	if strings.HasPrefix(c.Subject, reserved) {
		return nil, &InvalidToken{Reason: "the claim sub begins with system:, which only Kubernetes' own users do"}
	}
	identity := &Identity{
		User: User{Username: prefix + c.Subject}, Scopes: strings.Fields(c.Scope), Queues: c.Queues,
		DefaultNamespace: c.Namespace, Expires: c.ExpiresAt.Time,
	}
	for _, group := range c.Groups {
		if !strings.HasPrefix(group, reserved) {
			identity.User.Groups = append(identity.User.Groups, prefix+group)
		}
	}
	identity.User.Groups = append(identity.User.Groups, "system:authenticated")
	identity.AllNamespaces = slices.Contains(c.Namespaces, "*")
	identity.Namespaces = slices.DeleteFunc(slices.Clone(c.Namespaces), func(namespace string) bool { return namespace == "*" })
	if identity.DefaultNamespace == "" {
		identity.DefaultNamespace = defaultNamespace
		if len(identity.Namespaces) > 0 && !slices.Contains(identity.Namespaces, defaultNamespace) {
			identity.DefaultNamespace = identity.Namespaces[0]
		}
	}
	if len(c.Namespaces) == 0 {
		identity.Namespaces = []string{identity.DefaultNamespace}
	}
	return identity, nil
}

// Sign makes a token with a secret, for trials and tests.
func Sign(secret []byte, claims Claims) (string, error) {
	if err := checkSecret(secret); err != nil {
		return "", err
	}
	if claims.ExpiresAt == nil {
		return "", errors.New("the token needs an expiry")
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
}
