package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// Remote is a checkpoint in a store.
type Remote struct {
	// Name of a checkpoint's directory, also of one that lies elsewhere, such as at the top of a bucket.
	Name string
	// Manifest with its text. Of what Find returns it lacks the text and the files.
	Manifest *manifest.Manifest
	// key of the folder that the manifest is in.
	key string
}

// parallelReads is how many pieces of files are on their way at once, and filesAtOnce how many files.
const (
	parallelReads = 5
	filesAtOnce   = 4
)

// download brings a checkpoint into the new directory target. Every file is compared with its size and SHA-256; an InvalidError says what
// differs.
func (s *Store) download(ctx context.Context, r Remote, target string) error {
	if path.Base(path.Dir(r.key)) == folderCheckpoints {
		defer s.reading(ctx, r.key)()
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	err = s.use(ctx, func(ctx context.Context, bucket *blob.Bucket) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(filesAtOnce)
		buffers := make(chan []byte, parallelReads)
		for range parallelReads {
			buffers <- nil // made when it is needed first
		}
		for _, f := range r.Manifest.Files {
			group.Go(func() error { return s.downloadFile(ctx, bucket, r, f, root, target, buffers) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	if err := volume.WriteFile(target, manifest.FileName, r.Manifest.Text); err != nil {
		return err
	}
	return volume.SyncDirectory(target)
}

func (s *Store) downloadFile(
	ctx context.Context, bucket *blob.Bucket, r Remote, f manifest.File, root *os.Root, target string, buffers chan []byte,
) error {
	if err := (volume.Directory{Path: filepath.Join(target, filepath.FromSlash(path.Dir(f.Path)))}).Create(); err != nil {
		return err
	}
	damaged, err := confirmed(ctx, func() error { return s.fetch(ctx, bucket, r, f, root, buffers) })
	if damaged {
		s.condemn(ctx, r, f)
	}
	return err
}

// confirmed reads, and reads again what is not as it should be: it is damaged only when both have seen so, and neither was cut
// off, so that a mistake on the way does not condemn it.
func confirmed(ctx context.Context, read func() error) (damaged bool, err error) {
	if err = read(); !manifest.IsInvalid(err) || ctx.Err() != nil {
		return false, err
	}
	err = read()
	return manifest.IsInvalid(err) && ctx.Err() == nil, err
}

// keys are where the content of a file may lie: with the blobs of its area, or beside the manifest.
func (r Remote) keys(f manifest.File) []string {
	beside := path.Join(r.key, f.Path)
	if path.Base(path.Dir(r.key)) != folderCheckpoints {
		return []string{beside}
	}
	return []string{path.Join(path.Dir(path.Dir(r.key)), folderBlobs, f.SHA256), beside}
}

// condemn marks a content that is not what its name says, so that the next upload sends it again.
func (s *Store) condemn(ctx context.Context, r Remote, f manifest.File) {
	if r.key != path.Join(s.Prefix, folderCheckpoints, r.Name) {
		return // not the job's own
	}
	_ = s.write(context.WithoutCancel(ctx), path.Join(s.Prefix, folderCorrupt, f.SHA256), []byte("{}"), false)
}

func (s *Store) fetch(
	ctx context.Context, bucket *blob.Bucket, r Remote, f manifest.File, root *os.Root, buffers chan []byte,
) (err error) {
	file, err := root.OpenFile(f.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o664)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, key := range r.keys(f) {
		err = fetchPieces(ctx, bucket, key, f, file, buffers)
		if !isNotFound(err) {
			break
		}
	}
	if isNotFound(err) {
		return manifest.Invalid("%s is missing in the storage", f.Path)
	}
	if err != nil {
		return err
	}
	return file.Sync()
}

// piece is a part of a file that arrives.
type piece struct {
	data []byte
	err  error
}

// fetchPieces reads several pieces of an object at once and writes and hashes them in order.
func fetchPieces(ctx context.Context, bucket *blob.Bucket, key string, f manifest.File, file *os.File, buffers chan []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arriving := make(chan chan piece, parallelReads)
	go func() {
		defer close(arriving)
		for offset := int64(0); offset == 0 || offset < f.Size; offset += partBytes {
			var buffer []byte
			select {
			case buffer = <-buffers:
			case <-ctx.Done():
				return
			}
			next := make(chan piece, 1)
			arriving <- next
			go func() { next <- readPiece(ctx, bucket, key, f, offset, buffer) }()
		}
	}()
	h := sha256.New()
	var failed error
	for next := range arriving {
		p := <-next
		if failed == nil {
			failed = p.err
		}
		if failed == nil {
			_, _ = h.Write(p.data)
			_, failed = file.Write(p.data)
		}
		if failed != nil {
			cancel()
		}
		buffers <- p.data[:0:cap(p.data)]
	}
	if failed == nil && ctx.Err() == nil && manifest.Sum(h) != f.SHA256 {
		failed = manifest.Mismatch(f.Path)
	}
	return cmp.Or(failed, ctx.Err())
}

// readPiece reads one piece. An object without content is opened as a whole to see whether it is there, because what a store answers
// to questions about an object does not tell a missing object from a missing bucket.
func readPiece(ctx context.Context, bucket *blob.Bucket, key string, f manifest.File, offset int64, buffer []byte) piece {
	length := min(partBytes, f.Size-offset)
	if int64(cap(buffer)) < length {
		buffer = make([]byte, length)
	}
	buffer = buffer[:length]
	if f.Size == 0 {
		length = -1
	}
	r, err := bucket.NewRangeReader(ctx, key, offset, length, nil)
	if err != nil {
		return piece{buffer, err}
	}
	defer func() { _ = r.Close() }()
	if r.Size() != f.Size {
		return piece{buffer, manifest.Invalid("%s has %d bytes in the storage instead of %d", f.Path, r.Size(), f.Size)}
	}
	if _, err := io.ReadFull(r, buffer); err != nil {
		return piece{buffer, fmt.Errorf("read %s: %w", f.Path, err)}
	}
	return piece{buffer, nil}
}

// Fetch brings a checkpoint into folder under its name: first under a hidden name, then, once all of it is there and on
// the disk, renamed. What lies there under that name must have been moved away before. An InvalidError says what of it is damaged.
func (s *Store) Fetch(ctx context.Context, r Remote, folder string) error {
	hidden := filepath.Join(folder, volume.RestoringPrefix+r.Name)
	if err := os.RemoveAll(hidden); err != nil {
		return err
	}
	if err := (volume.Directory{Path: hidden}).Create(); err != nil {
		return err
	}
	err := s.download(ctx, r, hidden)
	if err == nil {
		err = os.Rename(hidden, filepath.Join(folder, r.Name))
	}
	if err != nil {
		_ = os.RemoveAll(hidden)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("bring %s to the volume: %w", r.Name, err)
		}
		return err
	}
	return volume.SyncDirectory(folder)
}
