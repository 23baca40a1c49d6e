package reconciling

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/child"
)

// Get reads an object; nil when it does not exist.
func Get[T any, P interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, namespace, name string) (P, error) {
	object := P(new(T))
	if found, err := child.Find(ctx, from, client.ObjectKey{Namespace: namespace, Name: name}, object); !found {
		return nil, err
	}
	return object, nil
}

// GetNamed reads objects that are in no namespace, by name; nil for one that does not exist.
func GetNamed[T any, P interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, names []string) (map[string]P, error) {
	all := map[string]P{}
	for _, name := range names {
		if _, known := all[name]; known {
			continue
		}
		object, err := Get[T, P](ctx, from, "", name)
		if err != nil {
			return nil, err
		}
		all[name] = object
	}
	return all, nil
}

// List fills a list of objects and returns its items.
func List[T client.Object](ctx context.Context, from client.Reader, list client.ObjectList, options ...client.ListOption) ([]T, error) {
	if err := from.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list %ss: %w", strings.TrimSuffix(reflect.TypeOf(list).Elem().Name(), "List"), err)
	}
	var all []T
	err := meta.EachListItem(list, func(item runtime.Object) error {
		all = append(all, item.(T))
		return nil
	})
	return all, err
}

// Find is the first of a list that matches, in the list itself; nil when none does.
func Find[T any](list []T, matches func(*T) bool) *T {
	for i := range list {
		if matches(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// Confirm returns a conflict, which passes by itself, if an object has changed since it was read. A program that has just started may have
// a cache that is behind, as has one whose API server is: what must not be decided from that asks the API server first.
func Confirm[T any, P interface {
	*T
	client.Object
}](ctx context.Context, direct client.Reader, read P) error {
	is, err := Get[T, P](ctx, direct, read.GetNamespace(), read.GetName())
	if err == nil && (is == nil || is.GetResourceVersion() != read.GetResourceVersion()) {
		err = apierrors.NewConflict(schema.GroupResource{Resource: reflect.TypeOf(read).Elem().Name()}, read.GetName(), errors.New("the cache is behind"))
	}
	return err
}
