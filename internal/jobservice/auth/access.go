package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// decidedFor is how long a decision of Kubernetes holds here.
	decidedFor   = 5 * time.Second
	maxDecisions = 50_000
	group        = "aiplatform.example.com"
)

// The resources that rights are about.
const (
	Jobs      = "aijobs"
	Queues    = "aijobqueues"
	Clusters  = "computeclusters"
	Workflows = "agentworkflows"
	// Pods are of no group; their subresource log is what the log of a job with pods needs.
	Pods = "pods"
)

// Forbidden is the error of a request that is not allowed.
type Forbidden struct {
	// Reason says what is missing.
	Reason string
}

// Error implements error.
func (e *Forbidden) Error() string { return e.Reason }

// Access says what identities may do: what the claims of their tokens allow and, in a cluster, Kubernetes too.
type Access struct {
	authorizer Authorizer
	// decisions of the authorizer are errors; nil: it is allowed.
	decisions *cache.LRUExpireCache
}

type question struct {
	key [sha256.Size]byte
	Attributes
}

// NewAccess returns an Access; without an authorizer the claims alone decide. now is the clock.
func NewAccess(authorizer Authorizer, now func() time.Time) *Access {
	return &Access{authorizer: authorizer, decisions: cache.NewLRUExpireCacheWithClock(maxDecisions, clock(now))}
}

// Check returns nil if the user may do it. Errors: *Forbidden, and ErrUnavailable when Kubernetes does not answer.
func (a *Access) Check(ctx context.Context, identity *Identity, attributes Attributes) error {
	if err := byClaims(identity, attributes); err != nil {
		return err
	}
	return a.ask(ctx, identity.key, identity.User, attributes)
}

// CheckUser returns nil if Kubernetes allows it to a user, who sends no request now. Errors: as those of Check.
func (a *Access) CheckUser(ctx context.Context, user User, attributes Attributes) error {
	key := sha256.Sum256([]byte(strings.Join(append([]string{user.Username}, user.Groups...), "\x00")))
	return a.ask(ctx, key, user, attributes)
}

// ask Kubernetes, unless it has answered a moment ago. The key is that of the user, with all that the answer depends on.
func (a *Access) ask(ctx context.Context, key [sha256.Size]byte, user User, attributes Attributes) error {
	if a.authorizer == nil {
		return nil
	}
	if attributes.Resource != Pods {
		attributes.Group = group
	}
	asked := question{key, attributes}
	refusal, known := cached[error](a.decisions, asked)
	if !known {
		allowed, reason, err := a.authorizer.Allowed(ctx, user, attributes)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		if !allowed {
			text := fmt.Sprintf("user %q may not %s", user.Username, phrase(attributes))
			if reason != "" {
				text += ": " + reason
			}
			refusal = &Forbidden{Reason: text + ": ask for a Role that allows it"}
		}
		a.decisions.Add(asked, refusal, decidedFor)
	}
	return refusal
}

func byClaims(identity *Identity, attributes Attributes) error {
	inNamespaces := []string{Jobs, Workflows, Pods}
	if slices.Contains(inNamespaces, attributes.Resource) && !identity.InNamespace(attributes.Namespace) {
		where := "all namespaces"
		if attributes.Namespace != "" {
			where = fmt.Sprintf("namespace %q", attributes.Namespace)
		}
		return &Forbidden{Reason: fmt.Sprintf("the token does not cover %s, only %s: use one whose claim namespaces has it",
			where, strings.Join(identity.Namespaces, ", "))}
	}
	if attributes.Verb == "work" && identity.Queues != nil && !slices.Contains(identity.Queues, attributes.Name) {
		return &Forbidden{Reason: fmt.Sprintf("the token does not cover tasks of queue %q, only %s: use one whose claim queues has it",
			attributes.Name, strings.Join(identity.Queues, ", "))}
	}
	return nil
}

func phrase(a Attributes) string {
	text := a.Verb + " " + a.Resource
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Name != "" {
		text += fmt.Sprintf(" %q", a.Name)
	}
	if a.Namespace != "" {
		text += fmt.Sprintf(" in namespace %q", a.Namespace)
	}
	return text
}

// Readable returns the namespaces whose jobs the user may list, among all or only the given one; nil: all of them.
// Errors: *Forbidden when there is none, ErrUnavailable.
func (a *Access) Readable(ctx context.Context, identity *Identity, namespace string) ([]string, error) {
	list := Attributes{Verb: "list", Resource: Jobs}
	asked := identity.Namespaces
	switch {
	case namespace != "":
		asked = []string{namespace}
	case identity.AllNamespaces:
		if err := a.Check(ctx, identity, list); !isForbidden(err) {
			return nil, err
		}
		asked = []string{identity.DefaultNamespace}
	}
	var readable []string
	var refused error
	for _, list.Namespace = range asked {
		err := a.Check(ctx, identity, list)
		switch {
		case err == nil:
			readable = append(readable, list.Namespace)
		case isForbidden(err):
			refused = err
		default:
			return nil, err
		}
	}
	if readable == nil {
		return nil, refused
	}
	return readable, nil
}

func isForbidden(err error) bool {
	var forbidden *Forbidden
	return errors.As(err, &forbidden)
}
