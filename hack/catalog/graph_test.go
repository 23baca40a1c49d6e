package main

import (
	"slices"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func offered(versions ...string) []Release {
	var list []Release
	for _, version := range versions {
		list = append(list, Release{Version: version})
	}
	return list
}

func name(version string) string { return Release{Version: version}.BundleName() }

func TestEntries(t *testing.T) {
	cases := map[string]struct {
		versions []string
		want     []Entry
	}{
		"none": {want: []Entry{}},
		"minor versions replace one another": {
			versions: []string{"0.1.0", "0.2.0", "0.3.0"},
			want: []Entry{
				{Name: name("0.1.0")}, {Name: name("0.2.0"), Replaces: name("0.1.0")}, {Name: name("0.3.0"), Replaces: name("0.2.0")},
			},
		},
		"a patch release skips the older ones of its minor version": {
			versions: []string{"0.1.0", "0.2.0", "0.2.1", "0.2.2", "0.3.0"},
			want: []Entry{
				{Name: name("0.1.0")},
				{Name: name("0.2.0"), Replaces: name("0.1.0")},
				{Name: name("0.2.1"), Replaces: name("0.1.0"), Skips: []string{name("0.2.0")}, SkipRange: ">=0.2.0 <0.2.1"},
				{Name: name("0.2.2"), Replaces: name("0.1.0"), Skips: []string{name("0.2.0"), name("0.2.1")}, SkipRange: ">=0.2.0 <0.2.2"},
				{Name: name("0.3.0"), Replaces: name("0.2.2")},
			},
		},
		"a patch release of the first minor version replaces nothing": {
			versions: []string{"0.1.0", "0.1.1"},
			want:     []Entry{{Name: name("0.1.0")}, {Name: name("0.1.1"), Skips: []string{name("0.1.0")}, SkipRange: ">=0.1.0 <0.1.1"}},
		},
		"a patch release of an old minor version comes before the next minor version": {
			versions: []string{"0.1.0", "0.1.1", "0.2.0"},
			want: []Entry{
				{Name: name("0.1.0")},
				{Name: name("0.1.1"), Skips: []string{name("0.1.0")}, SkipRange: ">=0.1.0 <0.1.1"},
				{Name: name("0.2.0"), Replaces: name("0.1.1")},
			},
		},
		"a patch release that is the only one of its channel": {
			versions: []string{"0.2.1"},
			want:     []Entry{{Name: name("0.2.1"), SkipRange: ">=0.2.0 <0.2.1"}},
		},
		"a major version replaces the one before it": {
			versions: []string{"0.9.3", "1.0.0"},
			want:     []Entry{{Name: name("0.9.3"), SkipRange: ">=0.9.0 <0.9.3"}, {Name: name("1.0.0"), Replaces: name("0.9.3")}},
		},
	}
	for title, c := range cases {
		t.Run(title, func(t *testing.T) {
			assert.Equal(t, c.want, upgradeGraph(offered(c.versions...)))
		})
	}
}

// From any installed version, every sequence of upgrades reaches the newest one and skips no minor version.
func TestEveryWayLeadsToTheHeadThroughEveryMinorVersion(t *testing.T) {
	list := offered("0.1.0", "0.1.1", "0.2.0", "0.2.1", "0.2.2", "0.3.0", "0.4.0", "0.4.1", "1.0.0", "1.1.0", "1.1.1")
	entries := upgradeGraph(list)
	minors := []string{"0.1", "0.2", "0.3", "0.4", "1.0", "1.1"}
	head := list[len(list)-1]

	var ways func(t *testing.T, installed Release)
	ways = func(t *testing.T, installed Release) {
		t.Helper()
		if installed.Version == head.Version {
			return
		}
		next := successors(t, entries, list, installed)
		require.NotEmpty(t, next, "%s is a dead end", installed.Version)
		for _, release := range next {
			step := slices.Index(minors, release.Minor()) - slices.Index(minors, installed.Minor())
			assert.True(t, step == 0 || step == 1, "%s to %s skips a minor version", installed.Version, release.Version)
			assert.True(t, release.Semver().GT(installed.Semver()), "%s to %s is not an upgrade", installed.Version, release.Version)
			ways(t, release)
		}
	}
	for _, installed := range list {
		ways(t, installed)
	}
}

// A patch release that only another channel offers has an upgrade in this channel too.
func TestPatchReleasesOfOtherChannelsAreUpgraded(t *testing.T) {
	list := offered("0.1.0", "0.2.0", "0.2.5")
	elsewhere := Release{Version: "0.2.3"}
	assert.Equal(t, list[2:], successors(t, upgradeGraph(list), list, elsewhere))
}

// A channel has one head: the one entry that no other replaces or skips.
func TestThereIsOneHead(t *testing.T) {
	entries := upgradeGraph(offered("0.1.0", "0.1.1", "0.2.0", "0.2.1", "0.3.0", "0.3.1"))
	left := map[string]bool{}
	for _, entry := range entries {
		left[entry.Name] = true
	}
	for _, entry := range entries {
		delete(left, entry.Replaces)
		for _, skipped := range entry.Skips {
			delete(left, skipped)
		}
	}
	assert.Equal(t, map[string]bool{name("0.3.1"): true}, left)
}

// successors are the releases to which OLM may upgrade the installed one in a single step.
func successors(t *testing.T, entries []Entry, list []Release, installed Release) []Release {
	t.Helper()
	var next []Release
	for i, entry := range entries {
		inRange := false
		if entry.SkipRange != "" {
			within, err := semver.ParseRange(entry.SkipRange)
			require.NoError(t, err)
			inRange = within(installed.Semver())
		}
		if inRange || entry.Replaces == installed.BundleName() || slices.Contains(entry.Skips, installed.BundleName()) {
			next = append(next, list[i])
		}
	}
	return next
}
