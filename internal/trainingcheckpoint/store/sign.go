package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"path"
	"slices"
	"time"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// SignedFile is a file of a checkpoint and a URL by which everyone who has it can read the file for a time.
type SignedFile struct {
	manifest.File

	// URL is a secret until it expires.
	URL string `json:"url"`
}

// Sign makes URLs for all files of a checkpoint that Find has found, the manifest last. It sees that they are there; an InvalidError says
// which is not. Nothing but the credentials of the store can take a URL back before it expires.
func (s *Store) Sign(ctx context.Context, r Remote, expires time.Duration) ([]SignedFile, error) {
	r, err := s.Load(ctx, r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(r.Manifest.Text)
	files := append(slices.Clone(r.Manifest.Files),
		manifest.File{Path: manifest.FileName, Size: int64(len(r.Manifest.Text)), SHA256: hex.EncodeToString(sum[:])})
	signed := make([]SignedFile, len(files))
	err = s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(smallParallel)
		for i, f := range files {
			group.Go(func() error {
				key, err := locate(ctx, bucket, r, f)
				if err == nil {
					signed[i].File = f
					signed[i].URL, err = s.signKey(ctx, bucket, key, expires)
				}
				return err
			})
		}
		return group.Wait()
	})
	if err != nil {
		return nil, err
	}
	return signed, nil
}

// locate finds where the content of a file lies.
func locate(ctx context.Context, bucket *blob.Bucket, r Remote, f manifest.File) (string, error) {
	for _, key := range r.keys(f) {
		a, err := bucket.Attributes(ctx, key)
		switch {
		case err == nil && a.Size != f.Size:
			return "", manifest.Invalid("%s has %d bytes in the storage instead of %d", f.Path, a.Size, f.Size)
		case err == nil:
			return key, nil
		case !isNotFound(err):
			return "", err
		}
	}
	return "", manifest.Invalid("%s is missing in the storage", f.Path)
}

func (s *Store) signKey(ctx context.Context, bucket *blob.Bucket, key string, expires time.Duration) (string, error) {
	options := &blob.SignedURLOptions{Expiry: expires}
	if s.Scheme == schemeGCS {
		options.BeforeSign = s.beforeSigningGCS
	}
	signed, err := bucket.SignedURL(ctx, key, options)
	switch {
	case err == nil:
		return signed, nil
	case s.Scheme == schemeGCS && gcerrors.Code(err) == gcerrors.Unimplemented:
		return "", s.cannotSign("the key of a service account, as " + keyGoogle)
	case errors.Is(err, bloberror.MissingSharedKeyCredential):
		return "", s.cannotSign("an access key of the storage account, as " + keyAzureKey)
	}
	return "", err
}

func (s *Store) cannotSign(what string) error {
	return report.NewProblem(report.ReasonCredentialsMissing,
		"a URL for %s can only be signed with %s: put it into the Secret that secretRef names", s.at(), what)
}

// beforeSigningGCS has URLs signed in the way that all servers know, and for the server that the location names.
func (s *Store) beforeSigningGCS(as func(any) bool) error {
	var options *storage.SignedURLOptions
	if !as(&options) {
		return errors.New("the library does not show what it signs")
	}
	options.Scheme = storage.SigningSchemeV4
	if s.Endpoint != "" {
		u, err := url.Parse(s.Endpoint)
		if err != nil {
			return err
		}
		options.Hostname, options.Insecure = path.Join(u.Host, u.Path), u.Scheme == "http"
	}
	return nil
}
