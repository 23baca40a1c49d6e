package unpack_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
)

// limits are small, so that tests reach them.
var limits = unpack.Limits{Files: 20, Bytes: 4 << 10, Depth: 4}

// directory is an empty one, with one beside it that must stay as it is.
func directory(t testing.TB) (dir string, root *os.Root) {
	t.Helper()
	base := t.TempDir()
	dir = filepath.Join(base, "code")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(base, "outside"), 0o755))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	t.Cleanup(func() {
		left, err := os.ReadDir(filepath.Join(base, "outside"))
		require.NoError(t, err)
		require.Empty(t, left, "written outside")
		beside, err := os.ReadDir(base)
		require.NoError(t, err)
		require.Len(t, beside, 2, "written outside")
	})
	return dir, root
}

func file(name, content string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), PAXRecords: map[string]string{"TEST.content": content}}
}

func executable(name, content string) *tar.Header {
	header := file(name, content)
	header.Mode = 0o6755
	return header
}

func folder(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func link(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}
}

func special(kind byte, name string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Linkname: "a"}
}

// tarOf is an archive of entries, with the contents that file gave them.
func tarOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, header := range headers {
		plain := *header
		if header.Typeflag != tar.TypeXGlobalHeader {
			plain.PAXRecords = nil
		}
		require.NoError(t, w.WriteHeader(&plain))
		if header.Typeflag == tar.TypeReg {
			_, err := w.Write([]byte(header.PAXRecords["TEST.content"]))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return archive.Bytes()
}

func zipOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, header := range headers {
		zipped := &zip.FileHeader{Name: header.Name, Method: zip.Deflate}
		zipped.SetMode(fs.FileMode(header.Mode & 0o777))
		content := header.PAXRecords["TEST.content"]
		switch header.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir:
			zipped.Name = strings.TrimSuffix(header.Name, "/") + "/"
			zipped.SetMode(fs.ModeDir | 0o755)
		case tar.TypeSymlink:
			zipped.SetMode(fs.ModeSymlink | 0o777)
			content = header.Linkname
		case tar.TypeFifo:
			zipped.SetMode(fs.ModeNamedPipe | 0o644)
		}
		entry, err := w.CreateHeader(zipped)
		require.NoError(t, err)
		_, err = entry.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return archive.Bytes()
}

func gzipped(t testing.TB, content []byte) []byte {
	t.Helper()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return compressed.Bytes()
}

func zstandard(t testing.TB, content []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return w.EncodeAll(content, nil)
}

// archive unpacks a file with this content.
func archive(t testing.TB, root *os.Root, content []byte) error {
	t.Helper()
	file := open(t, content)
	return unpack.New(root, limits).Archive(file)
}

func open(t testing.TB, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "archive")
	require.NoError(t, os.WriteFile(name, content, 0o600))
	file, err := os.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// contents are the files below dir, with a * behind the name of one that can be executed, links as -> with their target, and directories
// with a slash behind their name.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		require.NoError(t, err)
		name := strings.TrimPrefix(path, dir+"/")
		switch {
		case entry.IsDir():
			require.Equal(t, fs.ModeDir|0o777, info.Mode(), path)
			found[name+"/"] = ""
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			require.NoError(t, err)
			found[name] = "->" + target
		case info.Mode() == 0o777:
			name += "*"
			fallthrough
		default:
			require.Contains(t, []fs.FileMode{0o666, 0o777}, info.Mode(), path)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			found[name] = string(text)
		}
		return nil
	}))
	return found
}
