package tree_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/content/tree"
)

// write makes a directory with files; a path that ends in * is executable, and a content that begins with -> is the target of a link.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		mode := os.FileMode(0o644)
		if name[len(name)-1] == '*' {
			name, mode = name[:len(name)-1], 0o755
		}
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if len(content) > 2 && content[:2] == "->" {
			require.NoError(t, os.Symlink(content[2:], file))
			continue
		}
		require.NoError(t, os.WriteFile(file, []byte(content), mode))
	}
	return dir
}

func sumOf(t *testing.T, files map[string]string) tree.Sum {
	t.Helper()
	sum, err := tree.Of(write(t, files))
	require.NoError(t, err)
	return sum
}

func TestTheDigestIsThatOfTheDocumentedFormat(t *testing.T) {
	length := func(n int) string { return "\x00\x00\x00\x00\x00\x00\x00" + string(rune(n)) }
	content := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return length(32) + string(sum[:])
	}
	records := length(5) + "a.txt" + "f" + content("one") +
		length(3) + "a/b" + "x" + content("three") +
		length(6) + "a/link" + "l" + length(8) + "../a.txt"
	digest := sha256.Sum256([]byte(records))
	want := tree.Sum{Digest: "sha256:" + hex.EncodeToString(digest[:]), SizeBytes: 8, Files: 3}

	got := sumOf(t, map[string]string{"a/b*": "three", "a.txt": "one", "a/link": "->../a.txt"})

	assert.Empty(t, cmp.Diff(want, got))
	assert.Equal(t, "sha256:9c38fad0b0c02121ec35be93af1e89ac", got.Digest[:39], "it must not change between releases: jobs have it in their status")
}

func TestWhatTheDigestDependsOn(t *testing.T) {
	seen := map[string]int{}
	for i, files := range []map[string]string{
		{},
		{"a": ""},
		{"a": "x"},
		{"a*": "x"},
		{"b": "x"},
		{"ax": ""},
		{"a": "b", "b": "x"},
		{"a": "->b", "b": "x"},
		{"a": "->./b", "b": "x"},
		{"a/b": "x"},
		{"a": "x", "b": "x"},
		{"a": "xb"},
	} {
		digest := sumOf(t, files).Digest
		before, found := seen[digest]
		assert.False(t, found, "%v has the digest of number %d", files, before)
		seen[digest] = i
	}
}

func TestWhatTheDigestDoesNotDependOn(t *testing.T) {
	files := map[string]string{"a/run*": "x", "b": "y"}
	want := sumOf(t, files)
	dir := write(t, files)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "empty", "too"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a", "run"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(dir, "b"), 0o666))
	require.NoError(t, os.Chmod(filepath.Join(dir, "a"), 0o700|os.ModeSticky))
	require.NoError(t, os.Chtimes(filepath.Join(dir, "b"), time.Time{}, time.Unix(1, 0)))

	got, err := tree.Of(dir)

	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestFilesThatATreeCannotHave(t *testing.T) {
	for name, test := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"a link that leads out": {
			func(dir string) error { return os.Symlink("../x", filepath.Join(dir, "link")) },
			"the link link leads out of the directory: replace it by a copy of the file",
		},
		"a socket": {
			func(dir string) error {
				_, err := net.Listen("unix", filepath.Join(dir, "s"))
				return err
			},
			"the file s is neither a regular file, a directory nor a link: remove it",
		},
		"a name in another encoding": {
			func(dir string) error { return os.WriteFile(filepath.Join(dir, "\xe4"), nil, 0o600) },
			`the file "\xe4" has a name that is not UTF-8: rename it`,
		},
		"no directory": {os.Remove, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "tree") // short enough for a socket
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			require.NoError(t, test.make(dir))
			_, err = tree.Of(dir)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestListLeavesOutWhatIsSkipped(t *testing.T) {
	root, err := os.OpenRoot(write(t, map[string]string{"a/b": "", "a/c*": "xx", "d/e": "", "f": "->a/b", "out": "->/etc"}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })

	entries, err := tree.List(root, func(path string, directory bool) bool { return path == "d" && directory || path == "out" })

	require.NoError(t, err)
	assert.Empty(t, cmp.Diff([]tree.Entry{{Path: "a/b"}, {Path: "a/c", SizeBytes: 2, Executable: true}, {Path: "f", Target: "a/b"}}, entries))
}

func TestCheckLink(t *testing.T) {
	for _, test := range []struct {
		link, target string
		ok           bool
	}{
		{"a", "b", true},
		{"a", "./b//c/.", true},
		{"a", ".", true},
		{"d/a", "..", true},
		{"d/e/a", "../../b", true},
		{"./d/a", ".././b", true},
		{"a", "..b", true},
		{"a", "", false},
		{"a", "/", false},
		{"a", "/etc/passwd", false},
		{"a", "..", false},
		{"d/a", "../..", false},
		{"d/a", "../../d/b", false},
		{"a", "b/..", false},
		{"a", "b/../..", false},
		{"a", "./../b", false},
	} {
		t.Run(fmt.Sprintf("%s -> %s", test.link, test.target), func(t *testing.T) {
			assert.Equal(t, test.ok, tree.CheckLink(test.link, test.target) == nil)
		})
	}
}
