package main

import (
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

// The list of releases and the tree's own version, from the repository's top folder.
const (
	releasesFile = "catalog/releases.yaml"
	versionFile  = "VERSION"
)

// The channels, from the one that gets every release to the one that gets the proven ones. A release in one of them is
// in those before it as well, so that a user who changes the channel finds the installed version there.
const (
	Candidate = "candidate"
	Fast      = "fast"
	Stable    = "stable"
	// DefaultChannel is used by a Subscription that names none.
	DefaultChannel = Stable
)

// Channels returns all channels in that order.
func Channels() []string { return []string{Candidate, Fast, Stable} }

// Release is one released version, or the one that the tree is about to become.
type Release struct {
	// Version is a semantic version without a leading v.
	Version string `json:"version"`
	// Commit is the full hash of the released commit; empty for the unreleased version of the tree.
	Commit string `json:"commit,omitempty"`
	// Date of the release, as 2006-01-02.
	Date string `json:"date"`
	// Channels that offer the release.
	Channels []string `json:"channels"`
	// Deprecated tells the users of the release what to do instead. Empty for a release that is not deprecated.
	Deprecated string `json:"deprecated,omitempty"`
}

// Semver parses the version, which must be valid.
func (r Release) Semver() semver.Version { return semver.MustParse(r.Version) }

// Minor is the release's minor version, such as 0.2.
func (r Release) Minor() string {
	version := r.Semver()
	return fmt.Sprintf("%d.%d", version.Major, version.Minor)
}

// BundleName is the name of the release's ClusterServiceVersion.
func (r Release) BundleName() string { return Package + ".v" + r.Version }

// IsIn reports whether a channel offers the release.
func (r Release) IsIn(channel string) bool { return slices.Contains(r.Channels, channel) }

// List is all releases, the oldest version first.
type List struct {
	Releases []Release `json:"releases"`
}

// Find returns the release of a version, which may have a leading v.
func (l List) Find(version string) (Release, error) {
	version = strings.TrimPrefix(version, "v")
	var versions []string
	for _, release := range l.Releases {
		if release.Version == version {
			return release, nil
		}
		versions = append(versions, release.Version)
	}
	return Release{}, fmt.Errorf("%s has no release %s: it has %s", releasesFile, version, strings.Join(versions, ", "))
}

// In returns the releases that a channel offers, the oldest version first.
func (l List) In(channel string) []Release {
	return slices.DeleteFunc(slices.Clone(l.Releases), func(r Release) bool { return !r.IsIn(channel) })
}

// readReleases returns the checked list of the repository at root, and the version in its file VERSION.
func readReleases(root string) (List, string, error) {
	text, err := os.ReadFile(filepath.Join(root, versionFile))
	if err != nil {
		return List{}, "", fmt.Errorf("version of the tree: %w", err)
	}
	tree := strings.TrimSpace(string(text))
	data, err := os.ReadFile(filepath.Join(root, releasesFile))
	if err != nil {
		return List{}, "", fmt.Errorf("list of releases: %w", err)
	}
	list, err := parseReleases(data)
	if err != nil {
		return List{}, "", err
	}
	return list, tree, list.Check(tree)
}

func parseReleases(data []byte) (List, error) {
	var list List
	if err := yaml.UnmarshalStrict(data, &list); err != nil {
		return List{}, fmt.Errorf("%s: %w", releasesFile, err)
	}
	return list, nil
}
