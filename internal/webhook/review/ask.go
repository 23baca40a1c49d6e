package review

import (
	"context"
	"errors"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// defaultPatience leaves time for the answer within 2 seconds.
const defaultPatience = 1500 * time.Millisecond

// Asker asks the API server on behalf of the user of a request. The zero value asks nothing.
type Asker struct {
	// Client asks the API server itself, past every cache: see NewClient. Nil: nothing is asked.
	Client client.Client
	// May says whether a user may do something: nothing is looked up that the user of a request may not see.
	May func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) (bool, error)
	// Patience is how long a webhook waits for the API server before it admits the object unchecked. Default 1.5 s.
	Patience time.Duration
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
	patience := a.Patience
	if patience == 0 {
		patience = defaultPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
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
