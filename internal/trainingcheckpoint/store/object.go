package store

import (
	"context"
	"errors"
	"io"

	"gocloud.dev/blob"
)

// ErrNoObject means that there is no object of a name in the bucket.
var ErrNoObject = errors.New("there is no such object")

// Copy writes the content of an object, whatever it is, to a writer. ErrNoObject: there is none.
func (s *Store) Copy(ctx context.Context, key string, to io.Writer) error {
	return s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		r, err := bucket.NewReader(ctx, key, nil)
		if isNotFound(err) {
			return ErrNoObject
		}
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		copied, err := io.Copy(to, r)
		if err == nil && copied != r.Size() {
			return io.ErrUnexpectedEOF
		}
		return err
	})
}
