package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// released is a release with a made-up commit.
func released(version string, channels ...string) Release {
	return Release{Version: version, Commit: strings.Repeat("a", 40), Date: "2026-01-02", Channels: channels}
}

// upcoming is a version that is being worked on.
func upcoming(version string, channels ...string) Release {
	return Release{Version: version, Date: "2026-01-02", Channels: channels}
}

func TestSoundListsPass(t *testing.T) {
	cases := map[string]struct {
		tree     string
		releases []Release
	}{
		"the first version, being worked on": {
			tree:     "0.1.0",
			releases: []Release{upcoming("0.1.0", Candidate, Fast, Stable)},
		},
		"a version between its release and the next": {
			tree:     "0.2.0",
			releases: []Release{released("0.1.0", Candidate, Fast, Stable), released("0.2.0", Candidate)},
		},
		"patch releases and a version that is a candidate only": {
			tree: "0.3.0",
			releases: []Release{
				released("0.1.0", Candidate, Fast, Stable), released("0.1.1", Candidate, Fast, Stable),
				released("0.2.0", Candidate, Fast), released("0.2.1", Candidate, Fast, Stable), upcoming("0.3.0", Candidate),
			},
		},
		"the step to a new major version": {
			tree:     "1.0.0",
			releases: []Release{released("0.9.0", Candidate, Fast, Stable), upcoming("1.0.0", Candidate, Fast, Stable)},
		},
		"a deprecated version with a newer one": {
			tree: "0.2.0",
			releases: []Release{
				{Version: "0.1.0", Commit: strings.Repeat("b", 40), Date: "2026-01-01", Channels: Channels(), Deprecated: "upgrade"},
				upcoming("0.2.0", Candidate, Fast, Stable),
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			assert.NoError(t, List{Releases: c.releases}.Check(c.tree))
		})
	}
}

func TestUnsoundListsAreRefused(t *testing.T) {
	cases := map[string]struct {
		tree     string
		releases []Release
		want     string
	}{
		"no releases":            {tree: "0.1.0", want: "releases is empty: add an entry for version 0.1.0"},
		"a tree without version": {tree: "dev", releases: []Release{upcoming("0.1.0", Candidate)}, want: `VERSION: "dev" is not a semantic version`},
		"a version with a v": {
			tree: "0.1.0", releases: []Release{upcoming("v0.1.0", Candidate)}, want: `version "v0.1.0" is not a semantic version`,
		},
		"a pre-release": {
			tree: "0.1.0-rc.1", releases: []Release{upcoming("0.1.0-rc.1", Channels()...)}, want: "has a pre-release or build part",
		},
		"a short hash": {
			tree:     "0.1.0",
			releases: []Release{{Version: "0.1.0", Commit: "abc123", Date: "2026-01-01", Channels: Channels()}},
			want:     `releases[0] (0.1.0): commit "abc123" is not a full hash`,
		},
		"a release without a commit": {
			tree:     "0.2.0",
			releases: []Release{upcoming("0.1.0", Channels()...), upcoming("0.2.0", Candidate)},
			want:     "releases[0] (0.1.0): commit is missing",
		},
		"a tree that is in no release": {
			tree: "0.2.0", releases: []Release{released("0.1.0", Channels()...)}, want: "version 0.2.0 of file VERSION is missing",
		},
		"no date": {
			tree: "0.1.0", releases: []Release{{Version: "0.1.0", Channels: Channels()}}, want: `date "" is not a date`,
		},
		"an unknown channel": {
			tree: "0.1.0", releases: []Release{upcoming("0.1.0", Candidate, "beta")}, want: `channels: "beta" is none of candidate, fast, stable`,
		},
		"stable but no candidate": {
			tree: "0.1.0", releases: []Release{upcoming("0.1.0", Fast, Stable)}, want: "channels: candidate is missing",
		},
		"stable but not fast": {
			tree: "0.1.0", releases: []Release{upcoming("0.1.0", Candidate, Stable)}, want: "channels: has stable without fast",
		},
		"nothing in the default channel": {
			tree: "0.1.0", releases: []Release{upcoming("0.1.0", Candidate, Fast)}, want: "no release is in channel stable",
		},
		"the wrong order": {
			tree:     "0.1.0",
			releases: []Release{released("0.2.0", Channels()...), released("0.1.0", Channels()...)},
			want:     "releases[1]: 0.1.0 does not come after 0.2.0",
		},
		"a version twice": {
			tree:     "0.1.0",
			releases: []Release{released("0.1.0", Channels()...), released("0.1.0", Channels()...)},
			want:     "releases[1]: 0.1.0 does not come after 0.1.0",
		},
		"an older version being worked on": {
			tree:     "0.1.1",
			releases: []Release{released("0.1.0", Channels()...), upcoming("0.1.1", Channels()...), released("0.2.0", Channels()...)},
			want:     "version 0.1.1 of file VERSION is not released but older than 0.2.0",
		},
		"a deprecated head": {
			tree: "0.1.0",
			releases: []Release{
				{Version: "0.1.0", Commit: strings.Repeat("c", 40), Date: "2026-01-01", Channels: Channels(), Deprecated: "gone"},
			},
			want: "0.1.0 is deprecated but the newest in channel candidate",
		},
		"a channel that jumps over a minor version": {
			tree: "0.3.0",
			releases: []Release{
				released("0.1.0", Channels()...), released("0.2.0", Candidate, Fast), upcoming("0.3.0", Channels()...),
			},
			want: "channel stable leaves out version 0.2 between others",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, List{Releases: c.releases}.Check(c.tree), c.want)
		})
	}
}

func TestEveryProblemIsTold(t *testing.T) {
	err := List{Releases: []Release{{Version: "x", Commit: "y", Date: "z"}}}.Check("0.1.0")
	for _, want := range []string{`version "x"`, `commit "y"`, `date "z"`, "candidate is missing"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestParseRefusesUnknownFields(t *testing.T) {
	_, err := parseReleases([]byte("releases:\n- version: 0.1.0\n  chanels: [stable]\n"))
	assert.ErrorContains(t, err, `unknown field "chanels"`)
}

func TestFindNamesTheVersionsThatThereAre(t *testing.T) {
	list := List{Releases: []Release{released("0.1.0"), released("0.2.0")}}
	found, err := list.Find("0.2.0")
	require.NoError(t, err)
	assert.Equal(t, "spot-training-operator.v0.2.0", found.BundleName())
	_, err = list.Find("0.4.0")
	assert.EqualError(t, err, "catalog/releases.yaml has no release 0.4.0: it has 0.1.0, 0.2.0")
}

func TestReadTheRepositorysOwnList(t *testing.T) {
	list, tree, err := readReleases("../..")
	require.NoError(t, err)
	assert.NotEmpty(t, list.Releases)
	_, err = list.Find(tree)
	assert.NoError(t, err)
}

func TestReadSaysWhichFileIsMissing(t *testing.T) {
	root := t.TempDir()
	_, _, err := readReleases(root)
	assert.ErrorContains(t, err, "version of the tree")
	require.NoError(t, os.WriteFile(filepath.Join(root, versionFile), []byte("0.1.0\n"), 0o600))
	_, _, err = readReleases(root)
	assert.ErrorContains(t, err, "list of releases")
}
