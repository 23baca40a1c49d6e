package volume

import (
	"context"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

const name = "checkpoint-epoch-3"

// write puts a checkpoint of one file into the directory, as programs do: it becomes visible complete.
func write(t *testing.T, d Directory, content string) {
	t.Helper()
	writing := d.Join(".writing")
	require.NoError(t, os.Mkdir(writing, 0o755))
	require.NoError(t, os.WriteFile(d.Join(".writing/state.pt"), []byte(content), 0o644))
	require.NoError(t, os.Rename(writing, d.Join(name)))
}

// Retention, and an attempt that takes the same step again, remove a checkpoint that is being read.
func TestACheckpointThatGoesWhileItIsReadIsNotCorrupt(t *testing.T) {
	for _, test := range []struct {
		title string
		then  func(t *testing.T, d Directory)
		fails error
	}{
		{"it is removed", func(*testing.T, Directory) {}, fs.ErrNotExist},
		{"another of its name comes", func(t *testing.T, d Directory) { write(t, d, "of the next attempt") }, nil},
	} {
		t.Run(test.title, func(t *testing.T) {
			d := Directory{Path: t.TempDir()}
			write(t, d, "of the first attempt")
			_, err := d.Read(t.Context(), name)
			require.NoError(t, err)

			removed := false
			m, err := d.check(t.Context(), name, func(ctx context.Context, root *os.Root, m *manifest.Manifest) error {
				if !removed {
					removed = true
					require.NoError(t, d.Remove(name))
					test.then(t, d)
				}
				return manifest.Verify(ctx, root, m)
			})

			require.ErrorIs(t, err, test.fails)
			if test.fails == nil {
				assert.EqualValues(t, len("of the next attempt"), m.Files[0].Size)
			}
		})
	}
}

func TestADamagedCheckpointIsInvalid(t *testing.T) {
	d := Directory{Path: t.TempDir()}
	write(t, d, "whole")
	_, err := d.Read(t.Context(), name)
	require.NoError(t, err)
	require.NoError(t, os.Remove(d.Join(name+"/state.pt")))
	_, err = d.Verify(t.Context(), name)
	assert.True(t, manifest.IsInvalid(err), err)
}
