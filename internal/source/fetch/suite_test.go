package fetch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/test/harness/httpsserver"
)

// planted is in no output.
const planted = "planted-secret-0123456789"

const secretName = "fetch"

var secretRef = &podtemplate.SecretReference{Name: secretName}

// program is the code of the tests: files, and links, whose content begins with ->. Files that end with .sh may be executed.
var program = map[string]string{
	"train.py": "import pkg.model\n", "pkg/model.py": "print('hello')\n", "run.sh": "#!/bin/sh\nexec python train.py\n", "latest.py": "->train.py",
}

// instant is a clock whose pauses are over at once.
type instant struct {
	clock.Clock
	pauses []time.Duration
}

func (i *instant) After(pause time.Duration) <-chan time.Time {
	i.pauses = append(i.pauses, pause)
	over := make(chan time.Time, 1)
	over <- time.Time{}
	return over
}

// fetching is one run with its settings and its result.
type fetching struct {
	Settings
	clock  *instant
	status *podtemplate.SourceStatus
	err    error
}

// run fetches a source with the keys of a Secret or ConfigMap.
func run(t *testing.T, from podtemplate.Source, keys map[string]string, change ...func(*Settings)) *fetching {
	t.Helper()
	f := &fetching{clock: &instant{Clock: clock.RealClock{}}}
	f.Settings = Settings{Source: from, Directory: filepath.Join(t.TempDir(), "source"), Clock: f.clock}
	if from.ConfigMap != nil {
		f.Files = mounted(t, keys)
	} else {
		f.Credentials = mounted(t, keys)
	}
	for _, c := range change {
		c(&f.Settings)
	}
	f.status, f.err = Run(t.Context(), f.Settings)
	if f.err != nil {
		assert.NotContains(t, f.err.Error(), planted)
	}
	left, err := os.ReadDir(filepath.Dir(f.Directory))
	require.NoError(t, err)
	for _, entry := range left {
		assert.Equal(t, "source", entry.Name(), "something is left beside the code")
	}
	return f
}

// has requires that the code is there.
func (f *fetching) has(t *testing.T, files map[string]string) *fetching {
	t.Helper()
	require.NoError(t, f.err)
	assert.Equal(t, files, read(t, f.Directory))
	return f
}

// fails requires a problem for a reason, with a text in its message.
func (f *fetching) fails(t *testing.T, reason string, text string) {
	t.Helper()
	var p *source.Problem
	require.ErrorAs(t, f.err, &p)
	assert.Equal(t, reason, p.Reason, p.Message)
	assert.Contains(t, p.Message, text)
	assert.True(t, strings.HasPrefix(p.Message, "spec.source"), p.Message)
	assert.Nil(t, f.status)
	assert.Empty(t, read(t, f.Directory), "nothing of it is there")
}

// read are the files in a folder, in the form of program; none where there is no folder.
func read(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	if _, err := os.Stat(folder); os.IsNotExist(err) {
		return files
	}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		require.NoError(t, err)
		if entry.Type() == os.ModeSymlink {
			target, err := os.Readlink(path)
			files[name] = "->" + target
			return err
		}
		info, err := entry.Info()
		require.NoError(t, err)
		assert.Equal(t, strings.HasSuffix(name, ".sh"), info.Mode()&0o100 != 0, name)
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	}))
	return files
}

// mounted is a folder with keys, as the kubelet mounts them.
func mounted(t *testing.T, keys map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "..2026"), 0o755))
	require.NoError(t, os.Symlink("..2026", filepath.Join(folder, "..data")))
	for key, value := range keys {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "..2026", key), []byte(value), 0o600))
		require.NoError(t, os.Symlink("..data/"+key, filepath.Join(folder, key)))
	}
	return folder
}

// write writes files in the form of program into a folder.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, link := strings.CutPrefix(content, "->"); link {
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
	}
}

// packedFiles is a tar.gz of files in the form of program.
func packedFiles(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(files[name]))}
		if strings.HasSuffix(name, ".sh") {
			header.Mode = 0o755
		}
		if target, link := strings.CutPrefix(files[name], "->"); link {
			header.Typeflag, header.Linkname, header.Size = tar.TypeSymlink, target, 0
		}
		require.NoError(t, archive.WriteHeader(header))
		if header.Size > 0 {
			_, err := archive.Write([]byte(files[name]))
			require.NoError(t, err)
		}
	}
	require.NoError(t, archive.Close())
	require.NoError(t, compressed.Close())
	return packed.Bytes()
}

// serve starts an HTTPS server, and returns its URL and its authority.
func serve(t *testing.T, handler http.HandlerFunc) (url, ca string) {
	t.Helper()
	server := httpsserver.Start(t, nil, handler)
	return server.URL, server.CA
}
