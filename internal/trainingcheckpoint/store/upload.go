package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// Bounds of the memory that transfers use: buffers of all of them together, and those of one file.
const (
	partBytes     = 8 << 20
	maxParts      = 9000 // S3 takes 10,000 parts of a file
	fileParallel  = 3
	memoryBudget  = 48 << 20
	copyBytes     = 1 << 20
	smallParallel = 8
)

// Sent counts what an upload moved.
type Sent struct {
	// Uploaded bytes were sent, Reused bytes were in the store already.
	Uploaded, Reused int64
}

// Upload brings a checkpoint to the store: the files that it lacks, several at once, then the manifest, by which the
// checkpoint exists. Files are hashed while they are sent, and one that is not what the manifest says does not become
// visible; the error is then an InvalidError. Nothing valid is overwritten: the error is ErrOtherContent when another
// valid checkpoint has the name. ErrSuperseded: a later attempt has begun.
func (s *Store) Upload(ctx context.Context, area *Area, attempt int, dir *os.Root, name string, m *manifest.Manifest) (Sent, error) {
	present, there := area.Find(name)
	if there && present.Valid {
		if manifest.SameFiles(present.Manifest, m) {
			return Sent{}, nil
		}
		return Sent{}, ErrOtherContent
	}
	sent, err := s.uploadFiles(ctx, area, dir, m)
	if err != nil {
		return sent, err
	}
	// The last look before the checkpoint is made to exist: the training may run elsewhere by now.
	if err := s.Fence(ctx, attempt); err != nil {
		return sent, err
	}
	// One that is there and damaged is replaced.
	err = s.write(ctx, s.manifestKey(name), m.Text, !there)
	if gcerrors.Code(err) != gcerrors.FailedPrecondition {
		return sent, err
	}
	// One has come since the look. It can be this very one, when the store's answer to a first try was lost.
	came, err := s.Load(ctx, s.Own(name))
	switch {
	case err == nil && manifest.SameFiles(came.Manifest, m):
		return sent, nil
	case err != nil && !manifest.IsInvalid(err):
		return sent, err
	}
	return sent, ErrOtherContent
}

func (s *Store) uploadFiles(ctx context.Context, area *Area, dir *os.Root, m *manifest.Manifest) (Sent, error) {
	var sent Sent
	err := s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		group, inGroup := errgroup.WithContext(ctx)
		group.SetLimit(smallParallel)
		memory := semaphore.NewWeighted(memoryBudget)
		begun := map[string]bool{}
		for _, f := range m.Files {
			if begun[f.SHA256] || (area.refs[f.SHA256] && area.wrong(f) == "") {
				sent.Reused += f.Size
				continue
			}
			begun[f.SHA256] = true
			sent.Uploaded += f.Size
			cost := s.cost(f.Size)
			if memory.Acquire(inGroup, cost) != nil { // another has failed, or nothing moves any more
				return cmp.Or(group.Wait(), ctx.Err())
			}
			group.Go(func() error {
				defer memory.Release(cost)
				return s.uploadFile(inGroup, bucket, dir, f, area.corrupt[f.SHA256])
			})
		}
		return group.Wait()
	})
	if err != nil {
		return Sent{}, err
	}
	return sent, nil
}

// part is the size of the parts of a file, and how many are sent at once.
func part(size int64) (bytes, parallel int64) {
	bytes = max(partBytes, (size+maxParts-1)/maxParts)
	return bytes, max(1, min(fileParallel, fileParallel*partBytes/bytes))
}

// cost is the memory that sending a file takes.
func (s *Store) cost(size int64) int64 {
	bytes, parallel := part(size)
	if s.Scheme == schemeGCS { // which takes the parts of a file one after the other
		parallel = 0
	}
	return min(memoryBudget, max(copyBytes, min(size, bytes*(parallel+2))))
}

// uploadFile sends one file. It is visible in the store only when it is what the manifest says.
func (s *Store) uploadFile(ctx context.Context, bucket *blob.Bucket, dir *os.Root, f manifest.File, damaged bool) error {
	file, err := dir.Open(f.Path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content := &hashed{file: file, hash: sha256.New(), want: f, meter: &s.meter}
	defer content.done()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	key := s.blobKey(f.SHA256)
	err = s.send(ctx, abort, bucket, key, content)
	if content.err != nil { // which explains more than what the provider makes of it
		if err == nil {
			_ = s.remove(context.WithoutCancel(ctx), key)
		}
		return content.err
	}
	if err != nil {
		return because(ctx, err)
	}
	if damaged {
		return s.remove(ctx, path.Join(s.Prefix, folderCorrupt, f.SHA256))
	}
	return nil
}

// send makes an object of what content gives. An error of content ends it before the object is visible.
func (s *Store) send(ctx context.Context, abort context.CancelCauseFunc, bucket *blob.Bucket, key string, content *hashed) error {
	bytes, parallel := part(content.want.Size)
	options := &blob.WriterOptions{
		BufferSize: int(bytes), MaxConcurrency: int(parallel),
		ContentType: "application/octet-stream", DisableContentTypeDetection: true,
	}
	if s.Scheme != schemeGCS { // these libraries read themselves, and give up when reading fails
		return bucket.Upload(ctx, key, content, options)
	}
	w, err := bucket.NewWriter(ctx, key, options)
	if err != nil {
		return err
	}
	if _, err = manifest.Copy(ctx, w, content); err != nil {
		abort(err) // so that closing does not complete the object
	}
	closed := w.Close()
	if err == nil {
		err = closed
	}
	return err
}

// hashed reads a file, and fails at its end when it was not what the manifest says.
type hashed struct {
	file  *os.File
	hash  hash.Hash
	want  manifest.File
	meter *meter

	size int64
	err  error
	// ended: all is read, and the store has to make an object of it.
	ended bool
}

func (h *hashed) Read(p []byte) (int, error) {
	n, err := h.file.Read(p)
	_, _ = h.hash.Write(p[:n])
	h.size += int64(n)
	if err == nil {
		return n, nil
	}
	switch {
	case !errors.Is(err, io.EOF):
		h.err = err
	case h.size != h.want.Size:
		h.err = manifest.Invalid("%s has %d bytes instead of %d", h.want.Path, h.size, h.want.Size)
	case manifest.Sum(h.hash) != h.want.SHA256:
		h.err = manifest.Mismatch(h.want.Path)
	default:
		if !h.ended {
			h.ended = true
			h.meter.completing.Add(1)
		}
		return n, io.EOF
	}
	return n, h.err
}

func (h *hashed) done() {
	if h.ended {
		h.meter.completing.Add(-1)
	}
}

// Delete deletes a checkpoint of the area; what its manifest refers to goes with Collect.
func (s *Store) Delete(ctx context.Context, name string) error {
	if !manifest.IsName(name) {
		return fmt.Errorf("%q is no checkpoint: %w", name, fs.ErrInvalid)
	}
	return s.remove(ctx, s.manifestKey(name))
}
