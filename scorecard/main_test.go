package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/checks"
)

func TestTestsAreNamedAfterTheirSuite(t *testing.T) {
	names := map[string]bool{}
	for _, test := range checks.All() {
		assert.False(t, names[test.Name], "%s is there twice", test.Name)
		names[test.Name] = true
		prefix, _, _ := strings.Cut(test.Name, "-")
		assert.Equal(t, test.Suite(), map[string]string{"kind": "kinds"}[prefix]+strings.TrimPrefix(prefix, "kind"), test.Name)
		assert.Regexp(t, `\?$`, test.Question, test.Name)
		assert.NotNil(t, test.Run, test.Name)
	}
}

// result is what the program prints when it is called with the arguments.
func result(t *testing.T, args ...string) v1alpha3.TestResult {
	t.Helper()
	var out bytes.Buffer
	command := newCommand(&out)
	command.SetArgs(args)
	require.NoError(t, command.ExecuteContext(t.Context()))
	var status v1alpha3.TestStatus
	require.NoError(t, json.Unmarshal(out.Bytes(), &status))
	require.Len(t, status.Results, 1)
	return status.Results[0]
}

func TestAnUnknownTestIsAnErrorThatTheScorecardCanRead(t *testing.T) {
	got := result(t, "level9-bliss")

	assert.Equal(t, v1alpha3.ErrorState, got.State)
	require.Len(t, got.Errors, 1)
	assert.Contains(t, got.Errors[0], `there is no test "level9-bliss": name one of kind-trainingjob`)
}

func TestATestWithoutItsBundleIsAnError(t *testing.T) {
	got := result(t, "level1-kinds-served", "--bundle", t.TempDir())

	assert.Equal(t, "level1-kinds-served", got.Name)
	assert.Equal(t, v1alpha3.ErrorState, got.State)
	require.Len(t, got.Errors, 1)
	assert.Contains(t, got.Errors[0], "read the bundle in")
}

func TestListShowsEveryTest(t *testing.T) {
	var out bytes.Buffer
	command := newCommand(&out)
	command.SetArgs([]string{"list"})
	require.NoError(t, command.Execute())

	assert.Equal(t, len(checks.All())+1, strings.Count(out.String(), "\n"))
}

// Every kind has a controller, and so a test of what that does.
func TestEveryKindHasATest(t *testing.T) {
	got := map[string]bool{}
	for _, test := range checks.All() {
		if test.Suite() == "kinds" {
			got[test.Name] = true
			assert.NotContains(t, test.Question, "ControllerNotAvailable")
		}
	}
	scheme, want := runtime.NewScheme(), map[string]bool{}
	for _, add := range []func(*runtime.Scheme) error{mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	for kind := range scheme.AllKnownTypes() {
		if kind.Group != "" && scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind+"List")) {
			want["kind-"+strings.ToLower(kind.Kind)] = true
		}
	}
	assert.Equal(t, want, got)
}
