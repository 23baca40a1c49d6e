package main

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
		return fmt.Errorf("%s: %q is not a semantic version: write for example 0.3.0", versionFile, tree)
	}
	if len(l.Releases) == 0 {
		return fmt.Errorf("%s: releases is empty: add an entry for version %s with its date and channels", releasesFile, tree)
	}
	var problems []error
	for i, release := range l.Releases {
		for _, err := range release.problems(tree) {
			problems = append(problems, fmt.Errorf("releases[%d] (%s): %w", i, release.Version, err))
		}
	}
	// The other checks compare versions, which must be valid.
	if len(problems) == 0 {
		problems = slices.Concat(l.orderProblems(), l.treeProblems(tree), l.headProblems(), l.gapProblems())
	}
	for i, problem := range problems {
		problems[i] = fmt.Errorf("%s: %w", releasesFile, problem)
	}
	return errors.Join(problems...)
}

// problems returns what is wrong with one release, whatever the others are.
func (r Release) problems(tree string) []error {
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if version, err := semver.Parse(r.Version); err != nil {
		report("version %q is not a semantic version: write for example 0.3.0, without a v", r.Version)
	} else if len(version.Pre) > 0 || len(version.Build) > 0 {
		report("version has a pre-release or build part, which OLM orders as text: use channel %s instead", Candidate)
	}
	if r.Commit != "" && !fullHash.MatchString(r.Commit) {
		report("commit %q is not a full hash: write the 40 digits that git rev-parse prints", r.Commit)
	}
	if r.Commit == "" && r.Version != tree {
		report("commit is missing: name the released commit; only version %s of file %s has none", tree, versionFile)
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		report("date %q is not a date: write for example \"2026-11-21\"", r.Date)
	}
	for _, channel := range r.Channels {
		if !slices.Contains(Channels(), channel) {
			report("channels: %q is none of %s", channel, strings.Join(Channels(), ", "))
		}
	}
	if !r.IsIn(Candidate) {
		report("channels: %s is missing: it gets every release", Candidate)
	}
	if r.IsIn(Stable) && !r.IsIn(Fast) {
		report("channels: has %s without %s: add %s, so that users can move between them", Stable, Fast, Fast)
	}
	return problems
}

func (l List) orderProblems() []error {
	var problems []error
	for i := 1; i < len(l.Releases); i++ {
		before, release := l.Releases[i-1], l.Releases[i]
		if !release.Semver().GT(before.Semver()) {
			problems = append(problems, fmt.Errorf("releases[%d]: %s does not come after %s: list each version once, the oldest first",
				i, release.Version, before.Version))
		}
	}
	return problems
}

// treeProblems checks that the tree's version is listed, and that it is the newest while it is not released.
func (l List) treeProblems(tree string) []error {
	release, err := l.Find(tree)
	if err != nil {
		return []error{fmt.Errorf("version %s of file %s is missing: add an entry with its date and channels", tree, versionFile)}
	}
	newest := l.Releases[len(l.Releases)-1]
	if release.Commit == "" && newest.Version != tree {
		return []error{fmt.Errorf("version %s of file %s is not released but older than %s: raise %s",
			tree, versionFile, newest.Version, versionFile)}
	}
	return nil
}

// headProblems finds channels whose newest release is deprecated, and a default channel without releases.
func (l List) headProblems() []error {
	var problems []error
	for _, channel := range Channels() {
		offered := l.In(channel)
		if len(offered) == 0 {
			continue
		}
		if head := offered[len(offered)-1]; head.Deprecated != "" {
			problems = append(problems, fmt.Errorf("%s is deprecated but the newest in channel %s: its users have no upgrade",
				head.Version, channel))
		}
	}
	if len(l.In(DefaultChannel)) == 0 {
		problems = append(problems, fmt.Errorf("no release is in channel %s, which is the default: add it to one", DefaultChannel))
	}
	return problems
}

// gapProblems finds minor versions that a channel leaves out between others. A minor version may migrate stored objects,
// so every upgrade path must include one release of it.
func (l List) gapProblems() []error {
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
				problems = append(problems, fmt.Errorf("channel %s leaves out version %s between others: add a release of it to the channel, "+
					"since no upgrade may skip a minor version", channel, minor))
			}
		}
	}
	return problems
}

func minorsOf(sorted []Release) []string {
	var minors []string
	for _, release := range sorted {
		minors = append(minors, release.Minor())
	}
	return slices.Compact(minors)
}
