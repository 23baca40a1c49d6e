package auth

import (
	"context"

	"github.com/dcnlab/spot-training-operator/internal/accessreview"
)

// User is who a request comes from, as Kubernetes names users.
type User = accessreview.User

// TokenReviewer asks Kubernetes whose a token is.
type TokenReviewer interface {
	// Review says who a token belongs to; false: Kubernetes did not issue it for this service.
	Review(ctx context.Context, token string) (user User, authenticated bool, err error)
}

// Attributes are what a user wants to do.
type Attributes struct {
	// Verb is create, get, list, delete or work.
	Verb string
	// Resource of the group aiplatform.example.com: aijobs, aijobqueues, computeclusters, agentworkflows.
	Resource string
	// Namespace; empty: all namespaces, or a resource that is in none.
	Namespace string
	// Name of one object; empty: all.
	Name string
}

// Authorizer asks Kubernetes what a user may do, as by a SubjectAccessReview.
type Authorizer interface {
	// Allowed says whether the user may, and Kubernetes' reason, which may be empty.
	Allowed(ctx context.Context, user User, attributes Attributes) (allowed bool, reason string, err error)
}
