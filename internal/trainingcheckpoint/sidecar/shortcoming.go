package sidecar

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// shortcoming is what is wrong although the storage works: the training's newest checkpoint is damaged, or the volume has
// no room for another one.
func (y *syncer) shortcoming() *report.Problem {
	newest := y.status.snapshot().Newest
	for _, name := range slices.Sorted(maps.Keys(y.bad)) {
		bad := y.bad[name]
		if bad.other || !newerThan(bad.manifest, newest) {
			continue
		}
		kept := "there is no valid one"
		if newest != nil {
			kept = "the newest valid one is " + newest.Path
		}
		return report.NewProblem(report.ReasonCorruptCheckpoint,
			"the training wrote %s, but %s: it does not count, and %s: check how the program writes checkpoints, and the volume", name, bad.why, kept)
	}
	if newest == nil {
		return nil
	}
	free, err := y.Directory.Free()
	if err == nil && free < newest.SizeBytes {
		return report.NewProblem(report.ReasonVolumeFull,
			"%s has %d bytes left, but the next checkpoint needs about %d: enlarge the volume, lower spec.checkpoint.retention, or delete what is not needed",
			y.Directory.Path, free, newest.SizeBytes)
	}
	return nil
}

func newerThan(m *manifest.Manifest, c *report.Checkpoint) bool {
	if m == nil || c == nil {
		return true
	}
	return manifest.Compare(m, &manifest.Manifest{Epoch: c.Epoch, Step: c.Step, Created: c.Time}) > 0
}

// skipped are the damaged checkpoints that a report names, the newest first.
func (y *syncer) skipped(elsewhere map[string]string) []report.Skipped {
	var all []report.Skipped
	for _, name := range newestNames(maps.Keys(y.bad)) {
		all = append(all, report.Skipped{Path: y.Directory.Join(name), Message: y.bad[name].why})
	}
	for _, name := range newestNames(maps.Keys(elsewhere)) {
		all = append(all, report.Skipped{Path: y.path(name), Message: elsewhere[name]})
	}
	for _, s := range y.restored.Skipped {
		if !slices.ContainsFunc(all, func(known report.Skipped) bool { return known.Path == s.Path }) {
			all = append(all, s)
		}
	}
	return all
}

// newestNames sorts names of checkpoints by the number in them.
func newestNames(names func(yield func(string) bool)) []string {
	return slices.SortedFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) })
}
