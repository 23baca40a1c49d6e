package releases

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
)

var fullHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Check returns everything that is wrong with the list, given the tree's own version.
func (l List) Check(tree string) error {
	if _, err := semver.Parse(tree); err != nil {
		return fmt.Errorf("%s: %q is no semantic version: write for example 0.3.0", VersionFile, tree)
	}
	if len(l.Releases) == 0 {
		return fmt.Errorf("%s: releases is empty: add an entry for version %s with its date and channels", File, tree)
	}
	var problems []error
	for i, release := range l.Releases {
		for _, err := range release.problems(tree) {
			problems = append(problems, fmt.Errorf("%s: releases[%d] (%s): %w", File, i, release.Version, err))
		}
	}
	// What follows compares versions, so they must be valid.
	if len(problems) == 0 {
		problems = slices.Concat(l.order(), l.tree(tree), l.deprecations(), l.gaps())
	}
	return errors.Join(problems...)
}

// problems are what is wrong with one release, whatever the others are.
func (r Release) problems(tree string) []error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if version, err := semver.Parse(r.Version); err != nil {
		report("version %q is no semantic version: write for example 0.3.0, without a v", r.Version)
	} else if len(version.Pre) > 0 || len(version.Build) > 0 {
		report("version has a pre-release or build part: OLM would have to order it by text; use channel %s instead", Candidate)
	}
	if r.Commit != "" && !fullHash.MatchString(r.Commit) {
		report("commit %q is no full hash: write the 40 digits that git rev-parse prints", r.Commit)
	}
	if r.Commit == "" && r.Version != tree {
		report("commit is missing: name the commit that was released; only version %s of file %s goes without", tree, VersionFile)
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		report("date %q is no date: write for example \"2026-11-21\"", r.Date)
	}
	return append(problems, r.channelProblems()...)
}

func (r Release) channelProblems() []error {
	var problems []error
	for _, channel := range r.Channels {
		if !slices.Contains(Channels(), channel) {
			problems = append(problems, fmt.Errorf("channels: %q is none of %s", channel, strings.Join(Channels(), ", ")))
		}
	}
	if !r.In(Candidate) {
		problems = append(problems, fmt.Errorf("channels: %s is missing: it gets every release", Candidate))
	}
	if r.In(Stable) && !r.In(Fast) {
		problems = append(problems, fmt.Errorf("channels: has %s without %s: add %s, so that users can move between them", Stable, Fast, Fast))
	}
	return problems
}

// order finds releases that are not newer than the one before them.
func (l List) order() []error {
	var problems []error
	for i := 1; i < len(l.Releases); i++ {
		before, release := l.Releases[i-1], l.Releases[i]
		if !release.Semver().GT(before.Semver()) {
			problems = append(problems, fmt.Errorf("%s: releases[%d]: %s does not come after %s: list each version once, the oldest first",
				File, i, release.Version, before.Version))
		}
	}
	return problems
}

// tree checks that the tree's version is known, and that it is the newest while it is not released.
func (l List) tree(tree string) []error {
	release, err := l.Find(tree)
	if err != nil {
		return []error{fmt.Errorf("%s: version %s of file %s is missing: add an entry with its date and channels", File, tree, VersionFile)}
	}
	newest := l.Releases[len(l.Releases)-1]
	if release.Commit == "" && newest.Version != tree {
		return []error{fmt.Errorf("%s: version %s of file %s is not released but older than %s: raise %s",
			File, tree, VersionFile, newest.Version, VersionFile)}
	}
	return nil
}

// deprecations finds channels that would offer nothing but a deprecated head.
func (l List) deprecations() []error {
	var problems []error
	for _, channel := range Channels() {
		offered := l.In(channel)
		if len(offered) == 0 {
			continue
		}
		if head := offered[len(offered)-1]; head.Deprecated != "" {
			problems = append(problems, fmt.Errorf("%s: %s is deprecated but the newest in channel %s: its users had nothing to move to",
				File, head.Version, channel))
		}
	}
	if len(l.In(DefaultChannel)) == 0 {
		problems = append(problems, fmt.Errorf("%s: no release is in channel %s, which is the default: add it to one", File, DefaultChannel))
	}
	return problems
}

// gaps finds minor versions that a channel leaves out between others. A minor version may migrate stored objects, so
// every way through a channel must pass one release of it.
func (l List) gaps() []error {
	var problems []error
	minors := minorsOf(l.Releases)
	for _, channel := range Channels() {
		offered := minorsOf(l.In(channel))
		if len(offered) == 0 {
			continue
		}
		first, last := slices.Index(minors, offered[0]), slices.Index(minors, offered[len(offered)-1])
		for _, minor := range minors[first : last+1] {
			if !slices.Contains(offered, minor) {
				problems = append(problems, fmt.Errorf("%s: channel %s leaves out version %s between others: add a release of it to the channel, "+
					"since no upgrade may pass over a minor version", File, channel, minor))
			}
		}
	}
	return problems
}

// minorsOf returns the minor versions, such as 0.2, of sorted releases.
func minorsOf(sorted []Release) []string {
	var minors []string
	for _, release := range sorted {
		minors = append(minors, release.Minor())
	}
	return slices.Compact(minors)
}

// Minor is the release's minor version, such as 0.2.
func (r Release) Minor() string {
	version := r.Semver()
	return fmt.Sprintf("%d.%d", version.Major, version.Minor)
}
