package store

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"maps"
	"sync"
	"time"

	"gocloud.dev/blob"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// Store is a place in an object store. Its methods return errors that Explain can put into words.
type Store struct {
	Location
	// folder has the credentials; empty for those of the environment (workload identity).
	folder string
	meter  meter
	// RootCAs are the authorities that may sign the store's certificate; nil for those of the system. Set them before the store is used.
	RootCAs *x509.CertPool
	// StallAfter is how long not a single byte may move before the store counts as one that does not answer. Set it
	// before the store is used. Default 20 s.
	StallAfter time.Duration

	mu     sync.Mutex
	bucket *blob.Bucket
	// opened are the credentials that the bucket was opened with, secrets those that were read last; nil without a folder.
	opened, secrets credentials
	// manifests are those that the last Look has read.
	manifests map[object]parsed
}

// New returns the store at a URL, with the credentials in a directory, which is read again whenever they change; empty for
// those that the provider's library finds itself, such as workload identity. Nothing is asked of the store yet.
func New(rawURL, credentialsFolder string) (*Store, error) {
	l, err := ParseLocation(rawURL)
	if err != nil {
		return nil, err
	}
	return &Store{Location: l, folder: credentialsFolder, StallAfter: stallAfter, meter: meter{open: map[*meteredConn]uint64{}}}, nil
}

// open returns the bucket, opened again when the credentials have changed.
func (s *Store) open(ctx context.Context) (*blob.Bucket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder != "" {
		c, err := readCredentials(s.folder)
		if err != nil {
			return nil, err
		}
		s.secrets = c
		if err := c.missing(s.Location); err != nil {
			s.bucket = nil
			return nil, err
		}
	}
	if s.bucket != nil && maps.Equal(s.opened, s.secrets) {
		return s.bucket, nil
	}
	bucket, err := s.openBucket(ctx)
	if err != nil {
		return nil, err
	}
	// The former one is not closed: transfers may still use it.
	s.bucket, s.opened = bucket, s.secrets
	return bucket, nil
}

func (s *Store) openBucket(ctx context.Context) (*blob.Bucket, error) {
	client := s.meter.client(s.RootCAs)
	switch s.Scheme {
	case schemeGCS:
		return openGCS(ctx, s.Location, s.secrets, client)
	case schemeAzure:
		return openAzure(s.Location, s.secrets, client)
	}
	return openS3(ctx, s.Location, s.secrets, client)
}

// use calls f with the bucket. It ends f's context when nothing moves over the network any more, which is the error then.
func (s *Store) use(ctx context.Context, f func(ctx context.Context, bucket *blob.Bucket) error) error {
	bucket, err := s.open(ctx)
	if err != nil {
		return err
	}
	ctx, stop := s.meter.guard(ctx, s.StallAfter)
	defer stop()
	return because(ctx, f(ctx, bucket))
}

// object is an object in a list.
type object struct {
	key     string
	size    int64
	md5     string
	changed time.Time
	folder  bool
}

// list calls each for all objects whose names begin with prefix; only to the next slash when shallow, with folders.
func (s *Store) list(ctx context.Context, prefix string, shallow bool, each func(object)) error {
	options := &blob.ListOptions{Prefix: prefix}
	if shallow {
		options.Delimiter = "/"
	}
	return s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		objects, failed := bucket.List(options).All(ctx)
		for o := range objects {
			each(object{key: o.Key, size: o.Size, md5: string(o.MD5), changed: o.ModTime, folder: o.IsDir})
		}
		return failed()
	})
}

// read returns a small object. gcerrors.NotFound is the code of the error when there is none.
func (s *Store) read(ctx context.Context, key string) (text []byte, err error) {
	err = s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		r, err := bucket.NewReader(ctx, key, nil)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		text, err = io.ReadAll(io.LimitReader(r, manifest.MaxBytes))
		return err
	})
	return text, err
}

// write writes a small object; with fresh, only when there is none of that name.
func (s *Store) write(ctx context.Context, key string, content []byte, fresh bool) error {
	return s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		err := put(ctx, bucket, key, content, fresh)
		if fresh && isNotImplemented(err) {
			// A server without conditional writes; the caller has looked that there is none.
			err = put(ctx, bucket, key, content, false)
		}
		return err
	})
}

func put(ctx context.Context, bucket *blob.Bucket, key string, content []byte, fresh bool) error {
	return bucket.Upload(ctx, key, bytes.NewReader(content), &blob.WriterOptions{
		ContentType: "application/json", DisableContentTypeDetection: true, MaxConcurrency: 1, IfNotExist: fresh,
	})
}

// remove deletes an object; that it does not exist is no error.
func (s *Store) remove(ctx context.Context, key string) error {
	return s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		if err := bucket.Delete(ctx, key); !isNotFound(err) {
			return err
		}
		return nil
	})
}

// because returns the cause of a context's end in place of the error that it led to.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
