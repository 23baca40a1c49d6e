package main

import "fmt"

// Entry is a release in a channel, as OLM's schema olm.channel names it.
type Entry struct {
	// Name of the bundle.
	Name string `json:"name"`
	// Replaces is the bundle that is upgraded to this one; empty for the first minor version of the channel.
	Replaces string `json:"replaces,omitempty"`
	// Skips are the bundles that are upgraded to this one but are never an upgrade target themselves.
	Skips []string `json:"skips,omitempty"`
	// SkipRange are the versions that are upgraded to this one, from whichever channel they were installed.
	SkipRange string `json:"skipRange,omitempty"`
}

// upgradeGraph returns the entries of a channel that offers the given releases, sorted by version.
//
//   - The first release of a minor version replaces the newest release of the minor version before it. No upgrade skips
//     a minor version, because each may migrate stored objects that the next one can no longer read.
//   - Within a minor version, the newest release skips the older ones: an upgrade from an earlier minor version or from
//     an older patch release, of any channel, goes straight to it.
func upgradeGraph(offered []Release) []Entry {
	entries := make([]Entry, 0, len(offered))
	for i, release := range offered {
		entry := Entry{Name: release.BundleName()}
		if version := release.Semver(); version.Patch > 0 {
			entry.SkipRange = fmt.Sprintf(">=%d.%d.0 <%s", version.Major, version.Minor, release.Version)
		}
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
