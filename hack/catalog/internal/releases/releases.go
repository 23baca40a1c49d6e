// Package releases reads and checks the list of the operator's releases, catalog/releases.yaml.
package releases

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// Package is the name of the operator's OLM package.
const Package = "spot-training-operator"

// File and VersionFile are the paths of the list and of the tree's own version, from the repository's top folder.
const (
	File        = "catalog/releases.yaml"
	VersionFile = "VERSION"
)

// The channels, from the one that gets every release to the one that gets the proven ones. A release in one of them is
// in those before it as well, so that whoever moves to another channel finds the version there.
const (
	Candidate = "candidate"
	Fast      = "fast"
	Stable    = "stable"
)

// Channels are all channels in that order.
func Channels() []string { return []string{Candidate, Fast, Stable} }

// DefaultChannel is the channel of who names none.
const DefaultChannel = Stable

// Release is one released version, or the one that the tree is about to become.
type Release struct {
	// Version is a semantic version without a leading v.
	Version string `json:"version"`
	// Commit is the full hash of the commit whose tree was released; empty for the version that the tree is about to
	// become, which is made from the tree itself.
	Commit string `json:"commit,omitempty"`
	// Date of the release, as 2006-01-02.
	Date string `json:"date"`
	// Channels that offer the release.
	Channels []string `json:"channels"`
	// Deprecated says to whoever runs the release what to do instead. Empty for a release that is not deprecated.
	Deprecated string `json:"deprecated,omitempty"`
}

// List is all releases, the oldest version first.
type List struct {
	Releases []Release `json:"releases"`
}

// Semver is the version for comparing; a list that was read has valid ones only.
func (r Release) Semver() semver.Version { return semver.MustParse(r.Version) }

// BundleName is the name of the release's ClusterServiceVersion.
func (r Release) BundleName() string { return Package + ".v" + r.Version }

// In reports whether a channel offers the release.
func (r Release) In(channel string) bool { return slices.Contains(r.Channels, channel) }

// Find returns the release of a version.
func (l List) Find(version string) (Release, error) {
	for _, release := range l.Releases {
		if release.Version == version {
			return release, nil
		}
	}
	return Release{}, fmt.Errorf("%s has no release %s: it has %s", File, version, strings.Join(l.versions(), ", "))
}

// In returns the releases that a channel offers, the oldest version first.
func (l List) In(channel string) []Release {
	var offered []Release
	for _, release := range l.Releases {
		if release.In(channel) {
			offered = append(offered, release)
		}
	}
	return offered
}

func (l List) versions() []string {
	var versions []string
	for _, release := range l.Releases {
		versions = append(versions, release.Version)
	}
	return versions
}

// Read returns the checked list of the repository at root, and the version in its file VERSION.
func Read(root string) (List, string, error) {
	text, err := os.ReadFile(filepath.Join(root, VersionFile))
	if err != nil {
		return List{}, "", fmt.Errorf("version of the tree: %w", err)
	}
	tree := strings.TrimSpace(string(text))
	data, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		return List{}, "", fmt.Errorf("list of releases: %w", err)
	}
	list, err := Parse(data)
	if err != nil {
		return List{}, "", err
	}
	return list, tree, errors.Join(list.Check(tree))
}

// Parse reads the list without checking what it says.
func Parse(data []byte) (List, error) {
	var list List
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return List{}, fmt.Errorf("%s: %w", File, err)
	}
	return list, nil
}
