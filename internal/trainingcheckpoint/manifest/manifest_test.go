package manifest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

const sum = "ec11edc00a21049e2d06577b3a08bff09b76d9eb9c6b308bd33e7582fd8e467d"

func TestParse(t *testing.T) {
	good := `{"epoch": 3, "step": 36, "createdTime": "2026-03-01T12:00:00Z", "files": [{"path": "a/state.pt", "size": 1, "sha256": "` + sum + `"}]}`
	m, err := manifest.Parse([]byte(good))
	require.NoError(t, err)
	assert.EqualValues(t, 3, m.Epoch)
	assert.EqualValues(t, 36, m.Step)
	assert.EqualValues(t, 1, m.SizeBytes())
	for name, change := range map[string][2]string{
		"cut off":               {`]}`, ``},
		"no epoch":              {`"epoch": 3, `, ``},
		"a negative step":       {`36`, `-1`},
		"no time":               {`"createdTime": "2026-03-01T12:00:00Z", `, ``},
		"no files":              {`[{"path": "a/state.pt", "size": 1, "sha256": "` + sum + `"}]`, `[]`},
		"a path to elsewhere":   {`a/state.pt`, `../state.pt`},
		"an absolute path":      {`a/state.pt`, `/etc/passwd`},
		"the manifest itself":   {`a/state.pt`, `manifest.json`},
		"a hash that is none":   {sum, `abc`},
		"a negative size":       {`"size": 1`, `"size": -1`},
		"a path with backslash": {`a/state.pt`, `a\\state.pt`},
		"a file as a folder": {
			`[{`, `[{"path": "a", "size": 1, "sha256": "` + sum + `"}, {`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := manifest.Parse([]byte(strings.Replace(good, change[0], change[1], 1)))
			assert.True(t, manifest.IsInvalid(err), "%v", err)
		})
	}
}

func TestTheNewestHasTheMostSteps(t *testing.T) {
	now := time.Now()
	order := []*manifest.Manifest{
		{Step: 1, Epoch: 9, Created: now.Add(time.Hour)}, {Step: 2, Epoch: 1, Created: now.Add(time.Hour)},
		{Step: 2, Epoch: 2, Created: now}, {Step: 2, Epoch: 2, Created: now.Add(time.Second)},
	}
	for i := range order[1:] {
		assert.Negative(t, manifest.Compare(order[i], order[i+1]))
	}
}

func TestEpochsAndStepsOfManifestsThatWereMadeAreComparedByTime(t *testing.T) {
	now := time.Now()
	files := []manifest.File{{Path: "a", Size: 1, SHA256: sum}}
	step, err := manifest.New("checkpoint-step-100", now, files)
	require.NoError(t, err)
	last, err := manifest.New("checkpoint-epoch-10", now.Add(time.Minute), files)
	require.NoError(t, err)
	assert.Positive(t, manifest.Compare(last, step), "the last checkpoint of a training that saves by steps and at its end")
	assert.Negative(t, manifest.Compare(step, last))
}

func TestAFileThatLeadsElsewhereMakesACheckpointInvalid(t *testing.T) {
	dir := t.TempDir()
	text := `{"epoch": 1, "step": 1, "createdTime": "2026-03-01T12:00:00Z", "files": [{"path": "state.pt", "size": 1, "sha256": "` + sum + `"}]}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, manifest.FileName), []byte(text), 0o600))
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(dir, "state.pt")))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })

	_, err = manifest.Read(root)

	assert.True(t, manifest.IsInvalid(err), "an agent that tried forever would not look at the others: %v", err)
}

func TestAManifestThatIsMadeCanBeRead(t *testing.T) {
	made, err := manifest.New("checkpoint-epoch-7", time.Now(), []manifest.File{{Path: "b", Size: 2, SHA256: sum}, {Path: "a", Size: 1, SHA256: sum}})
	require.NoError(t, err)
	read, err := manifest.Parse(made.Text)
	require.NoError(t, err)
	assert.Equal(t, made.Files, read.Files)
	assert.EqualValues(t, 7, read.Epoch)
	assert.True(t, manifest.SameFiles(made, read))
}
