package stores

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
)

// objects are those of a store, as its clients see them.
type objects struct {
	t    testing.TB
	open func(bucket string) (*blob.Bucket, error)
}

func (o objects) in(bucket string, do func(ctx context.Context, in *blob.Bucket) error) {
	o.t.Helper()
	opened, err := o.open(bucket)
	require.NoError(o.t, err)
	require.NoError(o.t, errors.Join(do(context.Background(), opened), opened.Close()))
}

// Keys are the names of all objects in a bucket that begin with prefix.
func (o objects) Keys(bucket, prefix string) (keys []string) {
	o.t.Helper()
	o.in(bucket, func(ctx context.Context, in *blob.Bucket) error {
		for all := in.List(&blob.ListOptions{Prefix: prefix}); ; {
			object, err := all.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if !strings.HasPrefix(object.Key, ".sgwtmp/") { // what versitygw has not received as a whole
				keys = append(keys, object.Key)
			}
		}
	})
	return keys
}

// Get returns the content of an object.
func (o objects) Get(bucket, key string) (content []byte) {
	o.t.Helper()
	o.in(bucket, func(ctx context.Context, in *blob.Bucket) (err error) {
		content, err = in.ReadAll(ctx, key)
		return err
	})
	return content
}

// Put writes an object.
func (o objects) Put(bucket, key string, content []byte) {
	o.t.Helper()
	o.in(bucket, func(ctx context.Context, in *blob.Bucket) error { return in.WriteAll(ctx, key, content, nil) })
}

// Remove removes an object.
func (o objects) Remove(bucket, key string) {
	o.t.Helper()
	o.in(bucket, func(ctx context.Context, in *blob.Bucket) error { return in.Delete(ctx, key) })
}
