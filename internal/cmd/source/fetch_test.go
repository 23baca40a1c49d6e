package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// fetched runs the subcommand with a ConfigMap of these keys, and returns its termination message, its output and its error.
func fetched(t *testing.T, keys, environment map[string]string) (source.Report, string, error) {
	t.Helper()
	folder := t.TempDir()
	files, log := filepath.Join(folder, "files"), filepath.Join(folder, "termination-log")
	require.NoError(t, os.Mkdir(files, 0o755))
	for key, content := range keys {
		require.NoError(t, os.WriteFile(filepath.Join(files, key), []byte(content), 0o600))
	}
	variables := map[string]string{
		source.EnvSource: `{"configMap":{"name":"code"}}`, source.EnvDirectory: filepath.Join(folder, "source"), source.EnvFiles: files, source.EnvTermination: log,
	}
	for name, value := range environment {
		variables[name] = value
	}
	var out bytes.Buffer
	err := runFetch(t.Context(), func(name string) string { return variables[name] }, &out)
	var report source.Report
	if text, failed := os.ReadFile(log); failed == nil {
		require.NoError(t, json.Unmarshal(text, &report), "%s", text)
		assert.LessOrEqual(t, len(text), 4096)
	}
	return report, out.String(), err
}

func TestFetchReportsWhatItFetched(t *testing.T) {
	report, out, err := fetched(t, map[string]string{"train.py": "print()\n"}, nil)
	require.NoError(t, err)
	require.NotNil(t, report.Source)
	assert.Nil(t, report.Problem)
	assert.EqualValues(t, 1, report.Source.Files)
	assert.Equal(t, "fetched 1 files, 8 bytes, digest "+report.Source.Digest+"\n", out)
}

func TestFetchReportsWhyItCouldNot(t *testing.T) {
	report, _, err := fetched(t, nil, nil)
	var coded interface{ ExitCode() int }
	require.ErrorAs(t, err, &coded)
	assert.Equal(t, 66, coded.ExitCode())
	assert.Nil(t, report.Source)
	require.NotNil(t, report.Problem)
	assert.Equal(t, reasons.SourceNotFound, report.Problem.Reason)

	_, _, err = fetched(t, nil, map[string]string{source.EnvSource: "{"})
	require.ErrorContains(t, err, "SOURCE: is no source as JSON")
	_, _, err = fetched(t, nil, map[string]string{source.EnvDirectory: ""})
	require.ErrorContains(t, err, "SOURCE_DIRECTORY: is not set")
}

func TestATerminationMessageIsNeverCutOff(t *testing.T) {
	for _, text := range []string{
		terminationMessage(nil, &source.Problem{Reason: reasons.SourceInvalid, Message: strings.Repeat("x", 5000)}),
		terminationMessage(nil, errors.New(strings.Repeat("x", 5000))),
		terminationMessage(&podtemplate.SourceStatus{Digest: strings.Repeat("x", 128), Revision: strings.Repeat("x", 128)}, nil),
	} {
		assert.LessOrEqual(t, len(text), 4096)
	}
}
