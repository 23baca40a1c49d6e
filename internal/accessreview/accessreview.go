// Package accessreview asks the API server whose a token is and what a user may do. Callers cache the answers.
package accessreview

import (
	"context"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// timeout of one review with its retries.
const timeout = 10 * time.Second

// Token returns the user of a token; false: the API server does not accept the token, or not for the audience. An empty audience is the
// API server's own. Errors: those of the client, after retries.
func Token(ctx context.Context, client kubernetes.Interface, token, audience string) (authenticationv1.UserInfo, bool, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if audience != "" {
		review.Spec.Audiences = []string{audience}
	}
	review, err := ask(ctx, review, client.AuthenticationV1().TokenReviews().Create)
	if err != nil {
		return authenticationv1.UserInfo{}, false, err
	}
	// An API server that does not check audiences leaves them out of its answer.
	isAccepted := review.Status.Authenticated && (audience == "" || slices.Contains(review.Status.Audiences, audience))
	return review.Status.User, isAccepted, nil
}

// The right to review tokens lies in config/rbac, for those who serve metrics only.
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Access says whether a user may do what the spec names, whose user it fills in, and the API server's reason, which may be empty.
// Errors: those of the client, after retries.
func Access(
	ctx context.Context, client kubernetes.Interface, user authenticationv1.UserInfo, spec authorizationv1.SubjectAccessReviewSpec,
) (allowed bool, reason string, err error) {
	spec.User, spec.UID, spec.Groups = user.Username, user.UID, user.Groups
	spec.Extra = map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := ask(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, client.AuthorizationV1().SubjectAccessReviews().Create)
	if err != nil {
		return false, "", err
	}
	return review.Status.Allowed && !review.Status.Denied, review.Status.Reason, nil
}

// ask creates a review, again after transient errors.
func ask[T any](ctx context.Context, review T, create func(context.Context, T, metav1.CreateOptions) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	err = retry.OnError(backoff, func(err error) bool { return ctx.Err() == nil && isTransient(err) }, func() error {
		answer, err = create(ctx, review, metav1.CreateOptions{})
		return err
	})
	return answer, err
}

func isTransient(err error) bool {
	_, isDelayed := apierrors.SuggestsClientDelay(err)
	return isDelayed || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err)
}
