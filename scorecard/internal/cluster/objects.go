package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// poll is the interval at which objects are looked at.
	poll = 250 * time.Millisecond
	// cleanUpPatience is how long objects may take to go away.
	cleanUpPatience = 2 * time.Minute
	// label is set to the test's name on every object that it creates.
	label = "scorecard.ml.example.com/test"
)

// Example returns the bundle's example of the kind under a new name, in the test's namespace unless the kind is cluster-wide.
func (env *Env) Example(kind, name string) *unstructured.Unstructured {
	object, err := env.Bundle.Example(kind)
	env.Check(err)
	if object == nil {
		env.Failf("the annotation alm-examples has no %s", kind)
	}
	crd := env.Bundle.CRD(kind)
	if crd == nil {
		env.Failf("the bundle has no CustomResourceDefinition of %s", kind)
	}
	object.SetName("sc-" + name + "-" + utilrand.String(5)) // short enough for a TrainingJob
	object.SetNamespace("")
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		object.SetNamespace(env.Namespace)
	}
	return object
}

// Create creates the object, which is deleted after the test. A refusal by the API server is a Failure.
func (env *Env) Create(object client.Object) {
	object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{label: env.Test}))
	err := env.Client.Create(env.Context, object)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		env.Failf("the API server refuses %s: %v", env.describe(object), err)
	}
	env.Checkf(err, "create %s", env.describe(object))
	env.Adopt(object)
	env.Logf("created %s", env.describe(object))
}

// Adopt has the object deleted after the test, before those that were created earlier.
func (env *Env) Adopt(object client.Object) { env.created = append(env.created, object) }

// Remove deletes the object with its dependents, and waits until it is gone. It is not an error when it is gone already.
func (env *Env) Remove(ctx context.Context, object client.Object) error {
	err := env.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", env.describe(object), err)
	}
	gone := object.DeepCopyObject().(client.Object)
	return env.Until(ctx, env.describe(object)+" is gone", func(ctx context.Context) (bool, error) {
		err := env.Get(ctx, client.ObjectKeyFromObject(object), gone)
		if err == nil && gone.GetUID() != object.GetUID() && object.GetUID() != "" {
			return true, nil // another one has its name
		}
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// CleanUp deletes what the test created, also when the test was interrupted.
func (env *Env) CleanUp() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(env.Context), cleanUpPatience)
	defer cancel()
	var all []error
	for _, object := range slices.Backward(env.created) {
		all = append(all, env.Remove(ctx, object))
	}
	env.created = nil
	return errors.Join(all...)
}

// Until waits until the check returns true. An expired deadline of the context is a Failure that says what the test waited
// for.
func (env *Env) Until(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		done, err := check(ctx)
		switch {
		case err != nil && ctx.Err() != nil: // cut off in the middle
			return false, nil
		case err != nil && isTransient(err):
			last = err
			return false, nil
		}
		return done, err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		if last != nil {
			return Failf("gave up waiting until %s; the API server last said: %v", what, last)
		}
		return Failf("gave up waiting until %s", what)
	case ctx.Err() != nil:
		return fmt.Errorf("stopped while waiting until %s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("while waiting until %s: %w", what, err)
}

func isTransient(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err)
}

// describe names an object in a message. A typed object does not carry its kind.
func (env *Env) describe(object client.Object) string {
	kind, err := env.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Sprintf("%T %s", object, object.GetName())
	}
	return kind.Kind + " " + object.GetName()
}
