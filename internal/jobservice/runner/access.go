package runner

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/dcnlab/spot-training-operator/internal/accessreview"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

// Audience is what tokens of Kubernetes must be for: the service does not accept one for the API server or for another service.
const Audience = "job-service"

// Review returns the user of a token that Kubernetes issued for this service.
func (c *Cluster) Review(ctx context.Context, token string) (auth.User, bool, error) {
	user, ok, err := accessreview.Token(ctx, c.reviews, token, Audience)
	if err != nil {
		return auth.User{}, false, unavailable("review a token", err)
	}
	return user, ok, nil
}

// Allowed says whether a user may do something with objects of any version.
func (c *Cluster) Allowed(ctx context.Context, user auth.User, what auth.Attributes) (bool, string, error) {
	what.Version = "*"
	allowed, reason, err := accessreview.Access(ctx, c.reviews, user, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &what})
	if err != nil {
		return false, "", unavailable("review a right", err)
	}
	return allowed, reason, nil
}
