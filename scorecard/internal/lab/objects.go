package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const (
	// poll is the interval at which objects are looked at.
	poll = 250 * time.Millisecond
	// cleanUpPatience is how long objects may take to go away.
	cleanUpPatience = 2 * time.Minute
	// label on everything that a test makes is the test's name.
	label = "scorecard.ml.example.com/test"
)

// Name is a new name for an object of a test; short enough for a TrainingJob.
func Name(test string) string { return "sc-" + test + "-" + utilrand.String(5) }

// Create creates the object, which is removed after the test. A refusal by the API server is a Failure.
func (l *Lab) Create(ctx context.Context, test string, object client.Object) error {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[label] = test
	object.SetLabels(labels)
	err := l.Client.Create(ctx, object)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return verdict.Failf("the API server refuses %s: %v", l.describe(object), err)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", l.describe(object), err)
	}
	l.Adopt(object)
	l.Logf("created %s", l.describe(object))
	return nil
}

// Adopt has the object removed after the test, before those that were created earlier.
func (l *Lab) Adopt(object client.Object) { l.made = append(l.made, object) }

// Remove deletes the object with all that it owns, and waits until it is gone. That it is gone already is no error.
func (l *Lab) Remove(ctx context.Context, object client.Object) error {
	err := l.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", l.describe(object), err)
	}
	gone := object.DeepCopyObject().(client.Object)
	return l.Until(ctx, l.describe(object)+" is gone", func(ctx context.Context) (bool, error) {
		err := l.Get(ctx, client.ObjectKeyFromObject(object), gone)
		if err == nil && gone.GetUID() != object.GetUID() && object.GetUID() != "" {
			return true, nil // another one has its name
		}
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// CleanUp removes what the test has made, also when the test was cut short.
func (l *Lab) CleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
	defer cancel()
	var all []error
	for _, object := range slices.Backward(l.made) {
		all = append(all, l.Remove(ctx, object))
	}
	l.made = nil
	return errors.Join(all...)
}

// Until waits until the check holds. When the time of the context is over before, that is a Failure that names what was
// waited for.
func (l *Lab) Until(ctx context.Context, what string, check func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		done, err := check(ctx)
		switch {
		case err != nil && ctx.Err() != nil: // cut off in the middle
			return false, nil
		case err != nil && passing(err):
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
			return verdict.Failf("gave up waiting until %s; the API server last said: %v", what, last)
		}
		return verdict.Failf("gave up waiting until %s", what)
	case ctx.Err() != nil:
		return fmt.Errorf("stopped while waiting until %s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("while waiting until %s: %w", what, err)
}

// passing says whether an error may be gone at the next attempt.
func passing(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err)
}

// describe names an object in a message. One that was sent or read does not say of itself which kind it is.
func (l *Lab) describe(object client.Object) string {
	kind, err := l.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Sprintf("%T %s", object, object.GetName())
	}
	return kind.Kind + " " + object.GetName()
}
