package store

import (
	"context"
	"path"
	"strconv"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
)

// Collect deletes blobs that no manifest refers to and that are older than margin, marks of earlier attempts, and what
// belongs to them. It looks again first, so that what was written in the meantime counts.
func (s *Store) Collect(ctx context.Context, attempt int, margin time.Duration) error {
	if err := s.Mark(ctx, attempt); err != nil { // its time is the store's own
		return err
	}
	area, err := s.Look(ctx)
	if err != nil {
		return err
	}
	if area.Writer > attempt {
		return ErrSuperseded
	}
	var doomed []string
	for sum, o := range area.blobs {
		// What is not known to be referred to must not go on a single answer.
		if !area.unsure && retention.IsUnreferenced(area.refs[sum], o.changed, area.marks[attempt], margin) {
			doomed = append(doomed, s.blobKey(sum))
		}
	}
	for sum := range area.corrupt {
		if _, there := area.blobs[sum]; !there {
			doomed = append(doomed, path.Join(s.Prefix, folderCorrupt, sum))
		}
	}
	for other := range area.marks {
		if other < attempt {
			doomed = append(doomed, path.Join(s.Prefix, folderWriters, strconv.Itoa(other)))
		}
	}
	for i, key := range doomed {
		if i%16 == 0 {
			if err := s.Fence(ctx, attempt); err != nil {
				return err
			}
		}
		if err := s.remove(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// reading leaves a mark that a checkpoint is being restored, by which it is not deleted, and returns what removes it. A
// store that may only be read is as good: then no mark is left.
func (s *Store) reading(ctx context.Context, checkpoint string) func() {
	area, name := path.Dir(path.Dir(checkpoint)), path.Base(checkpoint)
	key := path.Join(area, folderReaders, name, strconv.FormatInt(time.Now().UnixNano(), 36))
	if s.write(ctx, key, []byte("{}"), false) != nil {
		return func() {}
	}
	return func() { _ = s.remove(context.WithoutCancel(ctx), key) }
}
