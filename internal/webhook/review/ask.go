package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/internal/accessreview"
)

// defaultPatience leaves time for the answer within 2 seconds.
const defaultPatience = 1500 * time.Millisecond

// Asker asks the API server on behalf of the user of a request. The zero value asks nothing.
type Asker struct {
	// Client asks the API server itself, past every cache. Nil: nothing is asked.
	Client client.Client
	// May says whether a user may do something: nothing is looked up that the user of a request may not see.
	May func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) (bool, error)
	// Patience is how long a webhook waits for the API server before it admits the object unchecked. Default 1.5 s.
	Patience time.Duration
}

// NewAsker returns an Asker by a client that has no cache, and keeps what the server says beside its answers for who asked, and by access reviews.
func NewAsker(config *rest.Config, scheme *runtime.Scheme, reviews kubernetes.Interface) (Asker, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler, config.WarningHandlerWithContext = nil, listener{}
	asking, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return Asker{}, fmt.Errorf("set up the webhooks' client: %w", err)
	}
	may := func(ctx context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
		may, _, err := accessreview.Access(ctx, reviews, user, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &what})
		return may, err
	}
	return Asker{Client: asking, May: may}, nil
}

// Question is one request to the API server.
type Question struct {
	// About is how the user knows what it is about.
	About string
	// Needs is what the user must be allowed, or the question is not put; nil for what any user may know.
	Needs *authorizationv1.ResourceAttributes
	// Ask puts it.
	Ask func(context.Context) error
}

// ToSee is what a user must be allowed to see objects of a kind.
func ToSee(verb, namespace, name string, kind schema.GroupVersionKind) *authorizationv1.ResourceAttributes {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return &authorizationv1.ResourceAttributes{Verb: verb, Namespace: namespace, Name: name, Group: plural.Group, Version: plural.Version, Resource: plural.Resource}
}

// AsKnown has the API server answer from what it holds in memory, at most some milliseconds old. For the newest it
// would wait up to 100 ms, whenever anything else in the cluster was written meanwhile, until etcd tells it that
// nothing is missing. Every request needs options of its own, because the client writes into them.
func AsKnown() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
}

// Ask puts all questions at the same time, and returns what those without an answer in time are about.
func (a Asker) Ask(ctx context.Context, user authenticationv1.UserInfo, questions []Question) (unchecked []string) {
	if a.Client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.Patience, defaultPatience))
	defer cancel()
	failures := make([]error, len(questions))
	var all sync.WaitGroup
	for n, q := range questions {
		all.Go(func() {
			may := q.Needs == nil
			if !may {
				may, failures[n] = a.May(ctx, user, *q.Needs)
			}
			if may {
				failures[n] = q.Ask(ctx)
			}
		})
	}
	all.Wait()
	for n, err := range failures {
		if err == nil {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			log.FromContext(ctx).Info("The API server could not be asked", "about", questions[n].About, "error", err.Error())
		}
		unchecked = append(unchecked, questions[n].About)
	}
	return unchecked
}
