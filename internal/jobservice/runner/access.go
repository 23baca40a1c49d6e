package runner

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	clientset "k8s.io/client-go/kubernetes"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

const (
	// Audience is what tokens of Kubernetes must be for, so that one for the API server, or for another service, is worth nothing here.
	Audience = "job-service"
	// reviewTimeout of one question.
	reviewTimeout = 10 * time.Second
)

// setReviews sets up what asks the API server about tokens and rights. Who asks remembers the answers.
func (c *Cluster) setReviews(typed clientset.Interface) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 3}
	// Without implicit audiences: an API server that does not look at audiences accepts no token here.
	var err error
	c.tokens, err = webhook.NewFromInterface(typed.AuthenticationV1(), nil, backoff, reviewTimeout, webhook.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {},
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return fmt.Errorf("set up the review of tokens: %w", err)
	}
	c.rights, err = authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: typed.AuthorizationV1(), WebhookRetryBackoff: &backoff,
	}.New()
	if err != nil {
		return fmt.Errorf("set up the review of rights: %w", err)
	}
	return nil
}

// Review says who a token belongs to that Kubernetes gave for this service.
func (c *Cluster) Review(ctx context.Context, token string) (auth.User, bool, error) {
	answer, ok, err := c.tokens.AuthenticateToken(authenticator.WithAudiences(ctx, authenticator.Audiences{Audience}), token)
	if err != nil {
		return auth.User{}, false, unavailable("review a token", err)
	}
	if !ok {
		return auth.User{}, false, nil
	}
	return auth.User{
		Name: answer.User.GetName(), UID: answer.User.GetUID(), Groups: answer.User.GetGroups(), Extra: answer.User.GetExtra(),
	}, true, nil
}

// Allowed says whether a user may do something with objects of the platform.
func (c *Cluster) Allowed(ctx context.Context, who auth.User, what auth.Attributes) (bool, string, error) {
	decision, reason, err := c.rights.Authorize(ctx, authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: who.Name, UID: who.UID, Groups: who.Groups, Extra: who.Extra},
		Verb: what.Verb, APIGroup: aiplatformv1alpha1.GroupName, APIVersion: "*", Resource: what.Resource,
		Namespace: what.Namespace, Name: what.Name, ResourceRequest: true,
	})
	if err != nil && decision != authorizer.DecisionAllow {
		return false, "", unavailable("review a right", err)
	}
	return decision == authorizer.DecisionAllow, reason, nil
}
