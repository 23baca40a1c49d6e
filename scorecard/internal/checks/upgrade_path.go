package checks

import (
	"errors"
	"strings"

	"github.com/blang/semver/v4"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

const (
	// firstRelease is the only version that has no predecessor.
	firstRelease = "0.1.0"
	skipRange    = "olm.skipRange"
)

func upgradePath(env *cluster.Env) {
	csv := env.Bundle.CSV
	env.Logf("%s: replaces %q, skips %q, %s %q", csv.Name, csv.Spec.Replaces, csv.Spec.Skips, skipRange, csv.Annotations[skipRange])
	env.Check(errors.Join(pathProblems(csv)...))
}

func pathProblems(csv *operatorsv1alpha1.ClusterServiceVersion) (wrong []error) {
	version := csv.Spec.Version.Version
	prefix, ok := strings.CutSuffix(csv.Name, "v"+version.String())
	if !ok {
		return []error{cluster.Failf("ClusterServiceVersion %s is not named after its version %s", csv.Name, version).
			Try("Name it <package>.v<version>.")}
	}
	before := csv.Spec.Skips
	if csv.Spec.Replaces != "" {
		before = append([]string{csv.Spec.Replaces}, before...)
	}
	versions := csv.Annotations[skipRange]
	if len(before) == 0 && versions == "" && version.String() != firstRelease {
		return []error{cluster.Failf("ClusterServiceVersion %s neither replaces nor skips a version: no version can be upgraded to it", csv.Name).
			Try("Set spec.replaces, spec.skips or the annotation " + skipRange + ".")}
	}
	for _, name := range before {
		text, ok := strings.CutPrefix(name, prefix+"v")
		earlier, err := semver.Parse(text)
		if !ok || err != nil {
			wrong = append(wrong, cluster.Failf("ClusterServiceVersion %s replaces or skips %s, which is not a version of this package", csv.Name, name))
		} else if !earlier.LT(version) {
			wrong = append(wrong, cluster.Failf("ClusterServiceVersion %s replaces or skips %s, which is not earlier", csv.Name, name))
		}
	}
	within, err := semver.ParseRange(versions)
	switch {
	case versions == "":
	case err != nil:
		wrong = append(wrong, cluster.Failf("the annotation %s %q is not a range of versions: %v", skipRange, versions, err).
			Try("Write it as '>=0.1.0 <"+version.String()+"'."))
	case within(version):
		wrong = append(wrong, cluster.Failf("the annotation %s %q contains the version %s itself", skipRange, versions, version).
			Try("End it with '<"+version.String()+"'."))
	}
	return wrong
}
