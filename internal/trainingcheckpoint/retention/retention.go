// Package retention decides which checkpoints are deleted. It touches nothing itself.
package retention

import (
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// Checkpoint is a checkpoint in a storage.
type Checkpoint struct {
	Name string
	// Manifest is nil when it cannot be read.
	Manifest *manifest.Manifest
	// Valid means that it is whole, as far as is known.
	Valid bool
	// Changed is when it was last written, by the clock of the storage.
	Changed time.Time
}

// Valid returns the valid ones, the newest first.
func Valid(all []Checkpoint) []Checkpoint {
	var valid []Checkpoint
	for _, c := range all {
		if c.Valid {
			valid = append(valid, c)
		}
	}
	slices.SortStableFunc(valid, func(a, b Checkpoint) int { return manifest.Compare(b.Manifest, a.Manifest) })
	return valid
}

// Surplus returns the names of those to delete: the valid ones beyond the keep newest, and damaged ones that are older
// than all that stay. Never among them are the newest valid one, those whose name is spared (restored from, or being
// read or written), and anything at all while nothing is valid. With keep 0 nothing is deleted.
func Surplus(all []Checkpoint, keep int, spared func(name string) bool) []string {
	valid := Valid(all)
	if keep <= 0 || len(valid) == 0 {
		return nil
	}
	kept := min(keep, len(valid))
	oldest := slices.MinFunc(valid[:kept], func(a, b Checkpoint) int { return a.Changed.Compare(b.Changed) }).Changed
	candidates := valid[kept:]
	for _, c := range all {
		if !c.Valid && c.Changed.Before(oldest) {
			candidates = append(candidates, c)
		}
	}
	var doomed []string
	for _, c := range candidates {
		if !spared(c.Name) {
			doomed = append(doomed, c.Name)
		}
	}
	return doomed
}

// IsUnreferenced says whether a content that was written at a time is to be deleted: no manifest refers to it, and it was written more than
// margin before now. The margin is for contents whose manifest is not written yet. Both times must be of one clock.
func IsUnreferenced(referenced bool, written, now time.Time, margin time.Duration) bool {
	return !referenced && written.Before(now.Add(-margin))
}
