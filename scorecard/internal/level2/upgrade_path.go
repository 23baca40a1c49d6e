package level2

import (
	"context"
	"errors"
	"strings"

	"github.com/blang/semver/v4"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const (
	// firstRelease is the only version that has no predecessor.
	firstRelease = "0.1.0"
	skipRange    = "olm.skipRange"
)

func upgradePath() suite.Test {
	return suite.Test{
		Name:     "level2-upgrade-path",
		Suite:    Suite,
		Question: "Does the ClusterServiceVersion say which earlier versions it is an upgrade from, unless it is the first release?",
		Run: func(_ context.Context, l *lab.Lab) error {
			l.Logf("%s: replaces %q, skips %q, %s %q", l.Bundle.CSV.Name, l.Bundle.CSV.Spec.Replaces, l.Bundle.CSV.Spec.Skips,
				skipRange, l.Bundle.CSV.Annotations[skipRange])
			return errors.Join(judgePath(l.Bundle.CSV)...)
		},
	}
}

// judgePath says what is wrong with the upgrade path to a ClusterServiceVersion.
func judgePath(csv *operatorsv1alpha1.ClusterServiceVersion) (wrong []error) {
	version := csv.Spec.Version.Version
	prefix, ok := strings.CutSuffix(csv.Name, "v"+version.String())
	if !ok {
		return []error{verdict.Failf("ClusterServiceVersion %s is not named after its version %s", csv.Name, version).
			Try("Name it <package>.v<version>.")}
	}
	before := csv.Spec.Skips
	if csv.Spec.Replaces != "" {
		before = append([]string{csv.Spec.Replaces}, before...)
	}
	span := csv.Annotations[skipRange]
	if len(before) == 0 && span == "" && version.String() != firstRelease {
		return []error{verdict.Failf("ClusterServiceVersion %s neither replaces nor skips a version: nobody can upgrade to it", csv.Name).
			Try("Set spec.replaces, spec.skips or the annotation " + skipRange + ".")}
	}
	for _, name := range before {
		text, ok := strings.CutPrefix(name, prefix+"v")
		earlier, err := semver.Parse(text)
		if !ok || err != nil {
			wrong = append(wrong, verdict.Failf("ClusterServiceVersion %s replaces or skips %s, which is no version of this package", csv.Name, name))
		} else if !earlier.LT(version) {
			wrong = append(wrong, verdict.Failf("ClusterServiceVersion %s replaces or skips %s, which is not earlier", csv.Name, name))
		}
	}
	if span != "" {
		wrong = append(wrong, judgeSpan(span, version)...)
	}
	return wrong
}

func judgeSpan(span string, version semver.Version) []error {
	within, err := semver.ParseRange(span)
	switch {
	case err != nil:
		return []error{verdict.Failf("the annotation %s %q is no range of versions: %v", skipRange, span, err).
			Try("Write it as '>=0.1.0 <" + version.String() + "'.")}
	case within(version):
		return []error{verdict.Failf("the annotation %s %q has the version %s itself in it", skipRange, span, version).
			Try("End it with '<" + version.String() + "'.")}
	}
	return nil
}
