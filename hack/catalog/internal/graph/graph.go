// Package graph derives the upgrade graph of a channel from the releases that it offers.
//
//   - A release of a new minor version replaces the newest release of the minor version before it. Nothing jumps over
//     a minor version, because each may migrate stored objects that the next one can no longer read.
//   - Within a minor version the newest release skips the older ones: who comes from an earlier minor version goes
//     straight to it, and who runs an older patch release, of this channel or of another, does so too.
package graph

import (
	"fmt"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
)

// Entry is a release in a channel, in the words of OLM's schema olm.channel.
type Entry struct {
	// Name of the bundle.
	Name string `json:"name"`
	// Replaces is the bundle that is upgraded to this one; empty for the first minor version of the channel.
	Replaces string `json:"replaces,omitempty"`
	// Skips are the bundles that are upgraded to this one but never upgraded to themselves.
	Skips []string `json:"skips,omitempty"`
	// SkipRange are the versions that are upgraded to this one, wherever they were installed from.
	SkipRange string `json:"skipRange,omitempty"`
}

// Of returns the entries of a channel's releases, which are sorted by version.
func Of(offered []releases.Release) []Entry {
	entries := make([]Entry, 0, len(offered))
	for i, release := range offered {
		entry := Entry{Name: release.BundleName(), SkipRange: skipRange(release)}
		for _, older := range offered[:i] {
			if older.Minor() == release.Minor() {
				entry.Skips = append(entry.Skips, older.BundleName())
			} else {
				entry.Replaces = older.BundleName()
			}
		}
		entries = append(entries, entry)
	}
	return entries
}

// skipRange covers the older patch releases of the same minor version. The first release of one needs none.
func skipRange(release releases.Release) string {
	version := release.Semver()
	if version.Patch == 0 {
		return ""
	}
	return fmt.Sprintf(">=%d.%d.0 <%s", version.Major, version.Minor, release.Version)
}
