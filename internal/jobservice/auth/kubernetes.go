package auth

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// User is who a request comes from, as Kubernetes names users.
type User = authenticationv1.UserInfo

// TokenReviewer asks Kubernetes whose a token is.
type TokenReviewer interface {
	// Review says who a token belongs to; false: Kubernetes did not issue it for this service.
	Review(ctx context.Context, token string) (user User, authenticated bool, err error)
}

// Attributes are what a user wants to do (create, get, list, delete or work) with a resource, whose group Access fills in. An empty
// namespace means all, or a resource that is in none; an empty name all objects.
type Attributes = authorizationv1.ResourceAttributes

// Authorizer asks Kubernetes what a user may do, as by a SubjectAccessReview.
type Authorizer interface {
	// Allowed says whether the user may, and Kubernetes' reason, which may be empty.
	Allowed(ctx context.Context, user User, attributes Attributes) (allowed bool, reason string, err error)
}
