package child

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Find reads an object; false when there is none of the name.
func Find(ctx context.Context, from client.Reader, key client.ObjectKey, object client.Object, options ...client.GetOption) (bool, error) {
	err := from.Get(ctx, key, object, options...)
	if err != nil && !apierrors.IsNotFound(err) {
		kind := cmp.Or(object.GetObjectKind().GroupVersionKind().Kind, reflect.TypeOf(object).Elem().Name())
		return false, fmt.Errorf("read %s %s: %w", kind, key.Name, err)
	}
	return err == nil, nil
}
