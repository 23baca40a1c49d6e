package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/internal/content/tree"
	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
)

// directory makes one with this name and these files. A path with a * at its end is executable.
func directory(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	put(t, dir, files)
	return dir
}

func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, "*") {
			name, mode = strings.TrimSuffix(name, "*"), 0o755
		}
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), mode))
	}
}

// execute runs the subcommand.
func execute(arguments ...string) (output, warnings string, err error) {
	var out, errs bytes.Buffer
	command := New()
	command.SilenceUsage, command.SilenceErrors = true, true
	command.SetOut(&out)
	command.SetErr(&errs)
	command.SetArgs(arguments)
	err = command.Execute()
	return out.String(), errs.String(), err
}

func packed(t *testing.T, arguments ...string) *corev1.ConfigMap {
	t.Helper()
	output, _, err := execute(append([]string{"pack"}, arguments...)...)
	require.NoError(t, err)
	var configMap corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict([]byte(output), &configMap))
	return &configMap
}

// headers are those of the entries of an archive.
func headers(t *testing.T, archive []byte) []tar.Header {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	assert.Empty(t, cmp.Diff(gzip.Header{OS: 255}, compressed.Header))
	var found []tar.Header
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		found = append(found, *header)
	}
}

// names are the paths in the archive of a ConfigMap.
func names(t *testing.T, configMap *corev1.ConfigMap) []string {
	t.Helper()
	var found []string
	for _, header := range headers(t, configMap.BinaryData[archiveKey]) {
		found = append(found, header.Name)
	}
	return found
}

func TestPack(t *testing.T) {
	dir := directory(t, "My_Model.v2", map[string]string{"run.sh*": "#!", "src/train.py": "x", "src.txt": "y"})
	require.NoError(t, os.Symlink("src/train.py", filepath.Join(dir, "main.py")))
	sum, err := tree.Of(dir)
	require.NoError(t, err)

	output, said, err := execute("pack", dir, "--namespace", "team")

	require.NoError(t, err)
	name := "my-model-v2-" + strings.TrimPrefix(sum.Digest, "sha256:")[:10]
	assert.Equal(t, "packed 4 files with 4 bytes: set spec.source.configMap.name to "+name+"\n", said)
	var configMap corev1.ConfigMap
	require.NoError(t, yaml.UnmarshalStrict([]byte(output), &configMap))
	assert.Equal(t, "v1 ConfigMap", configMap.APIVersion+" "+configMap.Kind)
	assert.Equal(t, "team/"+name, configMap.Namespace+"/"+configMap.Name)
	assert.True(t, *configMap.Immutable)
	assert.Len(t, configMap.BinaryData, 1)
	assert.NotContains(t, output, "creationTimestamp")
	epoch := time.Unix(0, 0)
	assert.Empty(t, cmp.Diff([]tar.Header{
		{Typeflag: tar.TypeSymlink, Name: "main.py", Linkname: "src/train.py", Mode: 0o777, ModTime: epoch, Format: tar.FormatUSTAR},
		{Typeflag: tar.TypeReg, Name: "run.sh", Size: 2, Mode: 0o755, ModTime: epoch, Format: tar.FormatUSTAR},
		{Typeflag: tar.TypeReg, Name: "src.txt", Size: 1, Mode: 0o644, ModTime: epoch, Format: tar.FormatUSTAR},
		{Typeflag: tar.TypeReg, Name: "src/train.py", Size: 1, Mode: 0o644, ModTime: epoch, Format: tar.FormatUSTAR},
	}, headers(t, configMap.BinaryData[archiveKey])))
}

func TestTheSameFilesGiveTheSameConfigMap(t *testing.T) {
	files := map[string]string{"a*": "1", "b/c": "2", "b.txt": "3"}
	one := directory(t, "code", files)
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })
	other := directory(t, "code", files)
	require.NoError(t, os.Chtimes(filepath.Join(other, "a"), time.Unix(1, 0), time.Unix(2, 0)))
	require.NoError(t, os.Mkdir(filepath.Join(other, "empty"), 0o700))
	assert.Empty(t, cmp.Diff(packed(t, one), packed(t, other)))
	put(t, other, map[string]string{"b/c": "4"})
	assert.NotEqual(t, packed(t, one).Name, packed(t, other).Name)
}

func TestPackToAFile(t *testing.T) {
	dir, file := directory(t, "code", map[string]string{"a": "1"}), filepath.Join(t.TempDir(), "configmap.yaml")
	want, _, err := execute("pack", dir, "--name", "mine")
	require.NoError(t, err)
	output, _, err := execute("pack", dir, "--name", "mine", "-o", file)
	require.NoError(t, err)
	assert.Empty(t, output)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, want, string(text))
	assert.Contains(t, want, "\n  name: mine\n")
}

func TestWhatIsNotPacked(t *testing.T) {
	files := map[string]string{
		".git/HEAD": "", "lib/.git": "", "a.py": "", "data/x.bin": "", "data/keep.txt": "", "lib/data/y.bin": "", "lib/b.pyc": "", "build/out/z": "", "#x": "",
	}
	for name, test := range map[string]struct {
		ignore string
		want   []string
	}{
		"only git": {"", []string{"#x", ".trainignore", "a.py", "build/out/z", "data/keep.txt", "data/x.bin", "lib/b.pyc", "lib/data/y.bin"}},
		"patterns": {"# data\r\n\n/data/*\n!/data/keep.txt\n*.pyc  \r\nbuild/\n", []string{"#x", ".trainignore", "a.py", "data/keep.txt", "lib/data/y.bin"}},
		"anywhere": {"data\n**/out", []string{"#x", ".trainignore", "a.py", "lib/b.pyc"}},
		"itself":   {".trainignore\nlib\nd*\nbuild", []string{"#x", "a.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, "code", files)
			put(t, dir, map[string]string{".trainignore": test.ignore})
			assert.Equal(t, test.want, names(t, packed(t, dir)))
		})
	}
}

func TestWhatCannotBePacked(t *testing.T) {
	for name, test := range map[string]struct {
		make      func(t *testing.T, dir string)
		arguments []string
		want      string
	}{
		"nothing": {func(*testing.T, string) {}, nil, "/code has no files"},
		"a link out": {
			func(t *testing.T, dir string) { require.NoError(t, os.Symlink("/etc", dir+"/etc")) }, nil,
			"the link etc leads out of the directory: replace it by a copy of the file, or add it to ",
		},
		"a pipe": {
			func(t *testing.T, dir string) { require.NoError(t, syscall.Mkfifo(dir+"/pipe", 0o600)) }, nil,
			"the file pipe is neither a regular file, a directory nor a link: remove it, or add it to ",
		},
		"no directory": {func(t *testing.T, dir string) { require.NoError(t, os.Remove(dir)) }, nil, "no such file or directory"},
		"too deep": {
			func(t *testing.T, dir string) { put(t, dir, map[string]string{strings.Repeat("d/", 32) + "a": ""}) }, nil, "has more than 32 parts: move the file up",
		},
		"too large to unpack": {
			func(t *testing.T, dir string) {
				put(t, dir, map[string]string{"a": ""})
				require.NoError(t, os.Truncate(dir+"/a", 1<<30+1))
			}, nil, "the files have 1073741825 bytes, and at most 1073741824 are unpacked: add what the program does not need to .trainignore",
		},
		"no name":      {func(*testing.T, string) {}, []string{"--name", "Not_a_name"}, "--name: a lowercase RFC 1123 subdomain must consist of"},
		"no namespace": {func(*testing.T, string) {}, []string{"--namespace", "A"}, "--namespace: a lowercase RFC 1123 label must consist of"},
		"two":          {func(*testing.T, string) {}, []string{"other"}, "accepts 1 arg(s), received 2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, "code", nil)
			test.make(t, dir)
			output, _, err := execute(append([]string{"pack", dir}, test.arguments...)...)
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, output)
		})
	}
}

func TestTooManyFiles(t *testing.T) {
	require.NoError(t, checkLimits(make([]tree.Entry, 10_000)))
	require.ErrorContains(t, checkLimits(make([]tree.Entry, 10_001)), "there are more than 10000 files and directories")
	entries := make([]tree.Entry, 9_999)
	entries[0].Path = "a/b/c"
	require.ErrorContains(t, checkLimits(entries), "there are more than 10000 files and directories")
}

func TestAnArchiveThatIsTooLargeForAConfigMap(t *testing.T) {
	noise := make([]byte, 600_000)
	random := rand.NewChaCha8([32]byte{})
	files := map[string]string{"1": "x", "2": "xx", "3": "xxx", "4": "xxxx"}
	for _, name := range []string{"data/a.bin", "b.bin"} {
		_, err := random.Read(noise)
		require.NoError(t, err)
		files[name] = string(noise)
	}
	dir := directory(t, "code", files)
	output, _, err := execute("pack", dir)
	require.Error(t, err)
	assert.Empty(t, output)
	assert.Regexp(t, `^the archive of \S*/code has 12\d{5} bytes, and a ConfigMap holds at most 1000000: add what the program does not need to `+
		`\S*/code/.trainignore, or use git, an OCI artifact or an archive in spec.source. The largest files:
      600000 b.bin
      600000 data/a.bin
           4 4
           3 3
           2 2$`, err.Error())
	put(t, dir, map[string]string{".trainignore": "/data"})
	assert.Equal(t, []string{".trainignore", "1", "2", "3", "4", "b.bin"}, names(t, packed(t, dir)))
}

func TestDefaultNames(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for dir, want := range map[string]string{
		"/code":                         "code-0123456789",
		"/a/Träining--Code_2/":          "tr-ining-code-2-0123456789",
		"/__":                           "source-0123456789",
		"/":                             "source-0123456789",
		"/" + strings.Repeat("a", 100):  strings.Repeat("a", 52) + "-0123456789",
		"/" + strings.Repeat("ab.", 30): strings.Repeat("ab-", 17) + "a-0123456789",
	} {
		name, err := defaultName(dir, digest)
		require.NoError(t, err)
		assert.Equal(t, want, name)
		assert.Empty(t, validation.IsDNS1123Label(name))
	}
	t.Chdir(directory(t, "here", nil))
	name, err := defaultName(".", digest)
	require.NoError(t, err)
	assert.Equal(t, "here-0123456789", name)
}

// What is packed and unpacked again has the same digest.
func TestPackAndUnpack(t *testing.T) {
	base := t.TempDir()
	part := rapid.SampledFrom([]string{"a", "b", "a.txt", "ä", " ", "-", strings.Repeat("long", 30)})
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		require.NoError(rt, err)
		for range rapid.IntRange(1, 10).Draw(rt, "files") {
			name := filepath.Join(dir, filepath.Join(rapid.SliceOfN(part, 1, 4).Draw(rt, "path")...))
			if os.MkdirAll(filepath.Dir(name), 0o755) != nil {
				continue // a file lies there
			}
			if _, err := os.Lstat(name); err == nil {
				continue
			}
			if rapid.IntRange(0, 4).Draw(rt, "link") == 0 {
				require.NoError(rt, os.Symlink(part.Draw(rt, "target"), name))
				continue
			}
			mode := rapid.SampledFrom([]os.FileMode{0o644, 0o755, 0o600, 0o444}).Draw(rt, "mode")
			require.NoError(rt, os.WriteFile(name, rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(rt, "content"), mode))
		}
		want, err := tree.Of(dir)
		require.NoError(rt, err)
		configMap, sum, err := pack(dir, "", "")
		require.NoError(rt, err)
		require.Equal(rt, want, sum)
		into, err := os.MkdirTemp(base, "")
		require.NoError(rt, err)
		root, err := os.OpenRoot(into)
		require.NoError(rt, err)
		defer func() { _ = root.Close() }()
		require.NoError(rt, unpack.New(root, unpack.CodeLimits).Tar(bytes.NewReader(configMap.BinaryData[archiveKey])))
		got, err := tree.Of(into)
		require.NoError(rt, err)
		require.Equal(rt, want, got)
		again, _, err := pack(into, configMap.Name, "")
		require.NoError(rt, err)
		require.Equal(rt, configMap, again)
	})
}
