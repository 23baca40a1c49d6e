package volume

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// step is one call that changed a directory, to be done again in a copy of it.
type step struct {
	what string
	do   func(root string) error
}

// written is a file that was made: where it lies, and what it holds in the end.
type written struct {
	path    string
	content []byte
}

// record returns the calls by which do changes what is in root, in their order.
func record(t *testing.T, root string, do func()) []step {
	t.Helper()
	queue, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	defer func() { _ = unix.Close(queue) }()
	watched := map[int32]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		watch, err := unix.InotifyAddWatch(queue, path, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVE|unix.IN_DELETE)
		watched[int32(watch)] = strings.TrimPrefix(path, root)
		return err
	}))
	do()

	buffer := make([]byte, 1<<16)
	n, err := unix.Read(queue, buffer)
	require.NoError(t, err)
	var steps []step
	files := map[string]*written{}
	from := ""
	for rest := buffer[:n]; len(rest) > 0; {
		watch, mask := int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:])
		end := unix.SizeofInotifyEvent + binary.NativeEndian.Uint32(rest[12:])
		path := filepath.Join("/", watched[watch], string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00")))
		rest = rest[end:]
		add := func(what string, do func(root string) error) { steps = append(steps, step{what + " " + path, do}) }
		switch {
		case mask&unix.IN_CREATE != 0:
			require.Zero(t, mask&unix.IN_ISDIR, "%s: what is in a new directory is not recorded", path)
			files[path] = &written{path: path}
			add("make", func(root string) error { return os.WriteFile(filepath.Join(root, path), nil, 0o600) })
		case mask&unix.IN_MODIFY != 0:
			file := files[path]
			require.NotNil(t, file, "%s was not new", path)
			for _, share := range []int{2, 1} {
				add("write", func(root string) error {
					return os.WriteFile(filepath.Join(root, path), file.content[:len(file.content)/share], 0o600)
				})
			}
		case mask&unix.IN_MOVED_FROM != 0:
			from = path
		case mask&unix.IN_MOVED_TO != 0:
			before := from
			add("rename "+before+" to", func(root string) error {
				return os.Rename(filepath.Join(root, before), filepath.Join(root, path))
			})
			if file := files[before]; file != nil {
				file.path, files[path] = path, file
			}
			for watch, folder := range watched {
				if folder == before || strings.HasPrefix(folder, before+"/") {
					watched[watch] = path + strings.TrimPrefix(folder, before)
				}
			}
		case mask&unix.IN_DELETE != 0:
			add("delete", func(root string) error { return os.Remove(filepath.Join(root, path)) })
		}
	}
	for _, file := range files {
		file.content, err = os.ReadFile(filepath.Join(root, file.path))
		require.NoError(t, err)
	}
	return steps
}

// An agent can be killed at any moment. What it leaves then is whole, or hidden, and the next one finishes what it began.
func TestAnAgentKilledBetweenAnyTwoCallsLeavesWholeCheckpoints(t *testing.T) {
	const old, damaged, bare, cut = "checkpoint-epoch-1", "checkpoint-epoch-2", "checkpoint-epoch-3", "checkpoint-epoch-4"
	fill := func(t *testing.T, d Directory) {
		for _, name := range []string{old, damaged, bare, cut} {
			for _, file := range []string{"state.pt", "shards/0.pt", "shards/1.pt"} {
				path := d.Join(name + "/" + file)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(name+" "+file), 0o600))
			}
			if name != bare {
				_, err := d.Read(t.Context(), name) // which adds a manifest
				require.NoError(t, err)
			}
		}
		require.NoError(t, os.Truncate(d.Join(damaged+"/state.pt"), 1))
		require.NoError(t, os.Rename(d.Join(cut), d.Join(deletingPrefix+old)))
	}
	for title, work := range map[string]func(d Directory) error{
		"removes a checkpoint":              func(d Directory) error { return d.Remove(old) },
		"hides a damaged checkpoint":        func(d Directory) error { _, err := d.Hide(damaged); return err },
		"adds a manifest":                   func(d Directory) error { _, err := d.Read(t.Context(), bare); return err },
		"deletes what is left of a removal": Directory.Clean,
	} {
		t.Run(title, func(t *testing.T) {
			before, d := t.TempDir(), Directory{Path: t.TempDir()}
			fill(t, d)
			require.NoError(t, os.CopyFS(before, os.DirFS(d.Path)))
			steps := record(t, d.Path, func() { require.NoError(t, work(d)) })
			require.NotEmpty(t, steps)

			last := "nothing"
			for n := range len(steps) + 1 {
				copied := Directory{Path: t.TempDir()}
				require.NoError(t, os.CopyFS(copied.Path, os.DirFS(before)))
				for _, s := range steps[:n] {
					require.NoError(t, s.do(copied.Path), s.what)
					last = s.what
				}

				names, err := copied.Names()
				require.NoError(t, err)
				for _, name := range names {
					_, err := copied.Verify(t.Context(), name)
					if name == damaged {
						require.True(t, manifest.IsInvalid(err), "%s after %q: %v", name, last, err)
					} else {
						require.NoError(t, err, "%s after %q", name, last)
					}
				}

				if err := work(copied); !errors.Is(err, fs.ErrNotExist) { // as it is when all was done
					require.NoError(t, err, "after %q", last)
				}
				require.NoError(t, copied.Clean())
				require.NoError(t, fs.WalkDir(os.DirFS(copied.Path), ".", func(path string, _ fs.DirEntry, err error) error {
					assert.NotContains(t, path, deletingPrefix, "after %q", last)
					assert.NotContains(t, path, ".tmp", "after %q", last)
					return err
				}))
			}
		})
	}
}
