package unpack_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/dcnlab/spot-training-operator/internal/content/tree"
	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
)

func TestEveryFormGivesTheSameFiles(t *testing.T) {
	entries := []*tar.Header{folder("./"), folder("src/"), file("src/a.py", "a"), executable("run.sh", "#!"), link("src/run", "../run.sh"), file("x/y/z", "")}
	want := map[string]string{"src/": "", "src/a.py": "a", "run.sh*": "#!", "src/run": "->../run.sh", "x/": "", "x/y/": "", "x/y/z": ""}
	plain := tarOf(t, entries...)
	var digests []string
	for name, unpacked := range map[string]func(*testing.T, *os.Root) error{
		"tar":     func(t *testing.T, root *os.Root) error { return archive(t, root, plain) },
		"tar.gz":  func(t *testing.T, root *os.Root) error { return archive(t, root, gzipped(t, plain)) },
		"tar.zst": func(t *testing.T, root *os.Root) error { return archive(t, root, zstandard(t, plain)) },
		"zip":     func(t *testing.T, root *os.Root) error { return archive(t, root, zipOf(t, entries...)) },
		"stream": func(t *testing.T, root *os.Root) error {
			return unpack.New(root, limits).Tar(iotest.OneByteReader(bytes.NewReader(gzipped(t, plain))))
		},
		"layer": func(t *testing.T, root *os.Root) error {
			return unpack.New(root, limits).Layer(bytes.NewReader(gzipped(t, plain)))
		},
		"layers": func(t *testing.T, root *os.Root) error {
			into := unpack.New(root, limits)
			return errors.Join(into.Layer(bytes.NewReader(tarOf(t, entries[2:]...))), into.Layer(bytes.NewReader(zstandard(t, tarOf(t, entries[:3]...)))))
		},
		"files": func(_ *testing.T, root *os.Root) error {
			into := unpack.New(root, limits)
			return errors.Join(into.File("src/a.py", false, strings.NewReader("a")), into.File("run.sh", true, strings.NewReader("#!")),
				into.Link("src/run", "../run.sh"), into.File("x/y/z", false, strings.NewReader("")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := directory(t)
			require.NoError(t, unpacked(t, root))
			assert.Empty(t, cmp.Diff(want, contents(t, dir)))
			sum, err := tree.Of(dir)
			require.NoError(t, err)
			digests = append(digests, sum.Digest)
		})
	}
	for _, digest := range digests {
		assert.Equal(t, digests[0], digest)
	}
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })
	dir, root := directory(t)
	require.NoError(t, archive(t, root, tarOf(t, file("d/a", ""), executable("b", ""))))
	assert.Equal(t, map[string]string{"d/": "", "d/a": "", "b*": ""}, contents(t, dir))
}

func TestEntriesThatAreFine(t *testing.T) {
	for name, test := range map[string]struct {
		entries []*tar.Header
		want    map[string]string
	}{
		"nothing":                  {nil, map[string]string{}},
		"the header of git":        {[]*tar.Header{{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c0ffee"}}}, map[string]string{}},
		"a file twice":             {[]*tar.Header{executable("a", "1"), file("./a", "2")}, map[string]string{"a": "2"}},
		"a directory twice":        {[]*tar.Header{folder("a"), folder("a/")}, map[string]string{"a/": ""}},
		"a way that stays inside":  {[]*tar.Header{file("a/../b//c", "1")}, map[string]string{"b/": "", "b/c": "1"}},
		"a link that is replaced":  {[]*tar.Header{file("b", "1"), link("a", "b"), file("a", "2")}, map[string]string{"a": "2", "b": "1"}},
		"a file becomes a link":    {[]*tar.Header{file("a", "1"), link("a", "b")}, map[string]string{"a": "->b"}},
		"a name with spaces":       {[]*tar.Header{file(" ä b ", "1")}, map[string]string{" ä b ": "1"}},
		"a name like a zip file's": {[]*tar.Header{file("PK-INFO", "1")}, map[string]string{"PK-INFO": "1"}},
		"whiteouts mean nothing":   {[]*tar.Header{file("a", "1"), file(".wh.a", "")}, map[string]string{"a": "1", ".wh.a": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := directory(t)
			require.NoError(t, archive(t, root, tarOf(t, test.entries...)))
			assert.Empty(t, cmp.Diff(test.want, contents(t, dir)))
		})
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	const below = ": pack the archive with names below "
	for name, test := range map[string]struct {
		entries []*tar.Header
		want    string
		only    string
	}{
		"out":                   {[]*tar.Header{file("../../x", "")}, "the entry ../../x leads out of the directory" + below + "it", ""},
		"out, later":            {[]*tar.Header{file("a/../../outside/x", "")}, "the entry a/../../outside/x leads out of the directory" + below + "it", ""},
		"out, a directory":      {[]*tar.Header{folder("..")}, "leads out of the directory", ""},
		"absolute":              {[]*tar.Header{file("/etc/x", "")}, "the entry /etc/x is an absolute path" + below + "the directory", ""},
		"an absolute link":      {[]*tar.Header{link("a", "/etc")}, "the link a leads out of the directory: replace it by a copy of the file", ""},
		"a link out":            {[]*tar.Header{link("d/a", "../../outside")}, "the link d/a leads out of the directory: replace it by a copy of the file", ""},
		"a link through a link": {[]*tar.Header{link("a", "b/../..")}, "the link a has .. behind a name in its target: write the target without", ""},
		"through a link": {
			[]*tar.Header{folder("b"), link("a", "b"), file("a/x", "")},
			"the entry a/x leads through a, which is no directory: rename one of them", "",
		},
		"a directory on a link":   {[]*tar.Header{folder("b"), link("a", "b"), folder("a/")}, "the entry a/ leads through a, which is no directory", ""},
		"through a file":          {[]*tar.Header{file("a", ""), file("a/x", "")}, "the entry a/x leads through a, which is no directory", ""},
		"a file on a directory":   {[]*tar.Header{file("a/x", ""), file("a", "")}, "the entry a is a directory and a file: rename one of them", ""},
		"a link on a directory":   {[]*tar.Header{folder("a"), link("a", "b")}, "the entry a is a directory and a file: rename one of them", ""},
		"the directory as a file": {[]*tar.Header{link("a/..", "b")}, "the entry a/.. is the directory itself: give it a name", ""},
		"a hard link": {
			[]*tar.Header{file("a", ""), special(tar.TypeLink, "b")},
			"the entry b is a hard link: pack the archive with a copy of the file", "tar",
		},
		"a pipe":             {[]*tar.Header{special(tar.TypeFifo, "a")}, "the entry a is a device or a pipe: pack the archive without it", ""},
		"a character device": {[]*tar.Header{special(tar.TypeChar, "a")}, "the entry a is a device or a pipe", "tar"},
		"a block device":     {[]*tar.Header{special(tar.TypeBlock, "a")}, "the entry a is a device or a pipe", "tar"},
		"an unknown type":    {[]*tar.Header{special('7', "a")}, "the entry a is of the unknown type '7'", "tar"},
		"too deep":           {[]*tar.Header{file("1/2/3/4/5", "")}, "the entry 1/2/3/4/5 has more than 4 parts in its path: move it up", ""},
		"too large": {
			[]*tar.Header{file("a", strings.Repeat("x", 4<<10)), file("b", "x")},
			"the source is more than 4 KiB: leave out what the program does not need", "",
		},
		"a name with a line break": {[]*tar.Header{file("/a\nb", "")}, `the entry "/a\nb" is an absolute path`, ""},
		"another encoding":         {[]*tar.Header{file("\xe4", "")}, `the entry "\xe4" has no valid name in UTF-8: rename it`, ""},
		"a target of another":      {[]*tar.Header{link("a", "\xe4")}, "the link a has a target that is not UTF-8", ""},
		"a name that is too long":  {[]*tar.Header{file(strings.Repeat("x", 256), "")}, "xxx... has a name that is too long: shorten it", ""},
		"the separator of Windows": {[]*tar.Header{file(`a\b`, "")}, `the entry "a\\b" has a \ in its name`, "zip"},
		"too many files": {
			many(21, func(i string) *tar.Header { return file(i, "") }),
			"the source has more than 20 files: leave out what the program does not need", "",
		},
		"too many links":             {many(21, func(i string) *tar.Header { return link(i, "x") }), "more than 20 files", ""},
		"too many directories":       {many(21, folder), "more than 20 files", ""},
		"a directory too many times": {many(22, func(string) *tar.Header { return folder("a") }), "more than 20 files", ""},
		"directories of files": {
			many(11, func(i string) *tar.Header { return file(i+"/x", "") }), "more than 20 files", "",
		},
		"too many headers of git": {many(21, func(i string) *tar.Header {
			return &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": i}}
		}), "more than 20 files", "tar"},
	} {
		for format, pack := range map[string]func(testing.TB, ...*tar.Header) []byte{"tar": tarOf, "zip": zipOf} {
			if test.only != "" && test.only != format {
				continue
			}
			t.Run(name+" in "+format, func(t *testing.T) {
				_, root := directory(t)
				requireInvalid(t, archive(t, root, pack(t, test.entries...)), test.want)
			})
		}
	}
}

func requireInvalid(t *testing.T, err error, want string) {
	t.Helper()
	invalid, ok := errors.AsType[*unpack.InvalidError](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, invalid.Message, want)
}

// many are entries with numbers as names.
func many(n int, entry func(string) *tar.Header) []*tar.Header {
	entries := make([]*tar.Header, n)
	for i := range entries {
		entries[i] = entry(strconv.Itoa(i))
	}
	return entries
}

func TestLinksOutsideOfArchives(t *testing.T) {
	_, root := directory(t)
	into := unpack.New(root, limits)
	for target, want := range map[string]string{"": "leads out", "a\x00b": "is not UTF-8", "../outside": "leads out"} {
		requireInvalid(t, into.Link("a", target), want)
	}
	for name, want := range map[string]string{"": `the entry "" has no valid name`, "a\x00b": `"a\x00b" has no valid name`, ".": "is the directory itself"} {
		requireInvalid(t, into.File(name, false, strings.NewReader("")), want)
	}
}

func TestALinkThatWasThereIsNotFollowed(t *testing.T) {
	dir, root := directory(t)
	require.NoError(t, os.Symlink("../outside", dir+"/out"))
	require.NoError(t, os.Symlink("../outside/x", dir+"/x"))
	requireInvalid(t, unpack.New(root, limits).File("out/x", false, strings.NewReader("")), "leads through out, which is no directory")
	require.NoError(t, unpack.New(root, limits).File("x", false, strings.NewReader("1")))
	require.NoError(t, os.Remove(dir+"/out"))
	assert.Equal(t, map[string]string{"x": "1"}, contents(t, dir))
}

func TestLimitsHoldOverSeveralCalls(t *testing.T) {
	_, root := directory(t)
	into := unpack.New(root, limits)
	layer := tarOf(t, many(10, func(i string) *tar.Header { return file(i, "") })...)
	require.NoError(t, into.Layer(bytes.NewReader(layer)))
	require.NoError(t, into.Layer(bytes.NewReader(layer)))
	requireInvalid(t, into.Layer(bytes.NewReader(layer)), "more than 20 files")

	into = unpack.New(root, limits)
	require.NoError(t, into.File("a", false, strings.NewReader(strings.Repeat("x", 4<<10))))
	requireInvalid(t, into.File("b", false, strings.NewReader("x")), "more than 4 KiB")
}

func TestTheDefaultLimits(t *testing.T) {
	_, root := directory(t)
	into := unpack.New(root, unpack.CodeLimits)
	requireInvalid(t, into.File(strings.Repeat("a/", 32)+"b", false, strings.NewReader("")), "has more than 32 parts")
	into = unpack.New(root, unpack.Limits{Files: 1, Bytes: 1 << 30, Depth: 1})
	require.NoError(t, into.File("a", false, strings.NewReader("")))
	requireInvalid(t, into.File("b", false, strings.NewReader("")), "more than 1 files")
	for bytes, want := range map[int64]string{1: "1 bytes", 1 << 20: "1 MiB", 3 << 30: "3 GiB"} {
		err := unpack.New(root, unpack.Limits{Files: 1, Bytes: bytes, Depth: 1}).Tar(bytesOf(tarOf(t, special(tar.TypeLink, "x"))))
		requireInvalid(t, err, "hard link")
		if bytes < 1<<20 {
			requireInvalid(t, unpack.New(root, unpack.Limits{Files: 1, Bytes: bytes, Depth: 1}).File("a", false, strings.NewReader("xx")), "more than "+want)
		}
	}
}

func bytesOf(content []byte) io.Reader { return bytes.NewReader(content) }

func TestBombsEndAtTheLimit(t *testing.T) {
	zeros := strings.Repeat("\x00", 1<<20)
	sparse, err := os.ReadFile("testdata/sparse.tar")
	require.NoError(t, err)
	lying := zipOf(t, file("a", zeros))
	// The size that the headers give is that of the list at the end: 24 bytes behind its signature.
	at := bytes.LastIndex(lying, []byte("PK\x01\x02")) + 24
	require.Equal(t, []byte{0, 0, 0x10, 0}, lying[at:at+4])
	copy(lying[at:], []byte{1, 0, 0, 0})
	for name, content := range map[string][]byte{
		"gzip":               gzipped(t, tarOf(t, file("a", zeros))),
		"zstd":               zstandard(t, tarOf(t, file("a", zeros))),
		"zip":                zipOf(t, file("a", zeros)),
		"a sparse file":      sparse,
		"behind the archive": gzipped(t, append(tarOf(t, file("a", "")), zeros...)),
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := directory(t)
			requireInvalid(t, archive(t, root, content), "the source is more than 4 KiB")
			info, err := os.Stat(dir + "/a")
			require.NoError(t, err)
			assert.LessOrEqual(t, info.Size(), limits.Bytes)
		})
	}
	_, root := directory(t)
	assert.Error(t, archive(t, root, lying), "a zip file that gives a size that is too small")
}

func TestAWhiteoutIsCounted(t *testing.T) {
	_, root := directory(t)
	requireInvalid(t, unpack.New(root, limits).Layer(bytesOf(tarOf(t, file(".wh.a", strings.Repeat("x", 5<<10))))), "more than 4 KiB")
	whiteouts := many(21, func(i string) *tar.Header { return file(".wh."+i, "") })
	requireInvalid(t, unpack.New(root, limits).Layer(bytesOf(tarOf(t, whiteouts...))), "more than 20 files")
}

func TestALongListOfAZipFileIsNotRead(t *testing.T) {
	_, root := directory(t)
	requireInvalid(t, archive(t, root, zipOf(t, many(5000, func(i string) *tar.Header { return file(i, "") })...)), "the list of files in the archive is too long")
}

func TestZipFilesThatCannotBeRead(t *testing.T) {
	content := zipOf(t, file("a", "some text"))
	list := bytes.LastIndex(content, []byte("PK\x01\x02"))
	for name, test := range map[string]struct {
		at    int
		value byte
		want  string
	}{
		"encrypted":         {list + 8, 1, "the entry a is encrypted: pack the archive without a password"},
		"an unknown method": {list + 10, 99, "the entry a is compressed by an unknown method: pack the archive with deflate"},
		"a wrong checksum":  {list + 16, content[list+16] + 1, "the archive is damaged (zip: checksum error): upload it again"},
	} {
		t.Run(name, func(t *testing.T) {
			_, root := directory(t)
			wrong := bytes.Clone(content)
			wrong[test.at] = test.value
			requireInvalid(t, archive(t, root, wrong), test.want)
		})
	}
	_, root := directory(t)
	require.NoError(t, archive(t, root, zipOf(t)), "one without files")
}

func TestFilesThatAreNoArchives(t *testing.T) {
	noise := bytes.Repeat([]byte("no archive"), 1000)
	for name, content := range map[string][]byte{
		"nothing": nil, "a short text": []byte("hello"), "a long text": noise, "a text in gzip": gzipped(t, noise), "nothing in gzip": gzipped(t, nil),
		"a text in zstd": zstandard(t, noise), "bzip2": append([]byte("BZh9"), noise...), "letters like zip's": []byte("PK"),
	} {
		t.Run(name, func(t *testing.T) {
			_, root := directory(t)
			requireInvalid(t, archive(t, root, content), "the source is no tar, tar.gz, tar.zst or zip file: pack it as one")
		})
	}
}

func TestArchivesThatEndTooEarly(t *testing.T) {
	entries := []*tar.Header{file("a", strings.Repeat("some text", 100)), file("b", "b")}
	plain := tarOf(t, entries...)
	for name, test := range map[string]struct {
		content []byte
		from    int
	}{
		"tar": {plain[:len(plain)-512], 512}, "tar.gz": {gzipped(t, plain), 3}, "tar.zst": {zstandard(t, plain), 5}, "zip": {zipOf(t, entries...), 5},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := directory(t)
			for end := test.from; end < len(test.content); end += 7 {
				err := unpackFile(t, dir, root, test.content[:end])
				requireInvalid(t, err, "the archive ends too early")
			}
		})
	}
}

// unpackFile unpacks into an empty directory, without a new one for each of many.
func unpackFile(t *testing.T, dir string, root *os.Root, content []byte) error {
	t.Helper()
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range found {
		require.NoError(t, root.RemoveAll(entry.Name()))
	}
	return unpack.New(root, limits).Archive(open(t, content))
}

func TestDamagedArchives(t *testing.T) {
	content := gzipped(t, tarOf(t, file("a", strings.Repeat("some text", 100))))
	content[len(content)-6]++ // of the checksum
	_, root := directory(t)
	requireInvalid(t, archive(t, root, content), "the archive is damaged (gzip: invalid checksum): upload it again")
}

func TestErrorsOfTheConnectionAndTheDiskAreOrdinary(t *testing.T) {
	content := gzipped(t, tarOf(t, file("a", strings.Repeat("some text", 100))))
	broken := errors.New("the connection broke")
	for _, end := range []int{0, 1, 5, 20, len(content) - 1} {
		for _, cause := range []error{broken, io.ErrUnexpectedEOF} {
			_, root := directory(t)
			err := unpack.New(root, limits).Tar(io.MultiReader(bytes.NewReader(content[:end]), iotest.ErrReader(cause)))
			requireOrdinary(t, err, cause)
		}
	}
	_, root := directory(t)
	requireOrdinary(t, unpack.New(root, limits).File("a", false, iotest.ErrReader(broken)), broken)
	requireOrdinary(t, unpack.New(root, limits).File("a", false, iotest.ErrReader(syscall.ENOSPC)), syscall.ENOSPC)
	require.NoError(t, root.Close())
	requireOrdinary(t, unpack.New(root, limits).File("d/a", false, strings.NewReader("")), os.ErrClosed)
	zipped := open(t, zipOf(t, file("a", "")))
	requireOrdinary(t, unpack.New(root, limits).Archive(zipped), os.ErrClosed)
	require.NoError(t, zipped.Close())
	requireOrdinary(t, unpack.New(root, limits).Archive(zipped), os.ErrClosed)
}

func requireOrdinary(t *testing.T, err, cause error) {
	t.Helper()
	_, invalid := errors.AsType[*unpack.InvalidError](err)
	require.False(t, invalid, "%v", err)
	require.ErrorIs(t, err, cause)
}

// Whatever an archive has, nothing is written outside, all links stay inside, and the limits hold.
func TestNoArchiveLeavesItsDirectory(t *testing.T) {
	base := t.TempDir()
	names := rapid.SampledFrom([]string{
		"a", "b", "a/b", "a/b/c", "../outside/x", "a/../../outside/y", "/tmp/x",
		".", "./", "a/", "b/", ".wh.a", ".wh.b", "a/.wh..wh..opq", "a/.wh.b", ".wh..", ".wh...", "..",
	})
	targets := rapid.SampledFrom([]string{"a", "b", "..", "../outside", ".", "../b", "a/..", "b/../..", "/", "../../outside", "a/b", "c/../../../outside"})
	kinds := rapid.SampledFrom([]byte{tar.TypeReg, tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, math.MaxInt8})
	rapid.Check(t, func(rt *rapid.T) {
		top, err := os.MkdirTemp(base, "")
		require.NoError(rt, err)
		require.NoError(rt, os.Mkdir(top+"/outside", 0o755))
		require.NoError(rt, os.Mkdir(top+"/code", 0o755))
		root, err := os.OpenRoot(top + "/code")
		require.NoError(rt, err)
		defer func() { _ = root.Close() }()
		into := unpack.New(root, limits)
		for range rapid.IntRange(1, 3).Draw(rt, "archives") {
			var headers []*tar.Header
			for range rapid.IntRange(1, 8).Draw(rt, "entries") {
				header := &tar.Header{Typeflag: kinds.Draw(rt, "kind"), Name: names.Draw(rt, "name")}
				if header.Typeflag != tar.TypeDir {
					header.Name = strings.TrimSuffix(header.Name, "/")
				}
				if header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink {
					header.Linkname = targets.Draw(rt, "target")
				}
				headers = append(headers, header)
			}
			content := bytes.NewReader(tarOf(t, headers...))
			if rapid.Bool().Draw(rt, "layer") {
				err = into.Layer(content)
			} else {
				err = into.Tar(content)
			}
			if err != nil {
				_, invalid := errors.AsType[*unpack.InvalidError](err)
				require.True(rt, invalid, "%v", err)
				break
			}
		}
		_, err = tree.Of(top + "/code")
		require.NoError(rt, err)
		found, err := os.ReadDir(top + "/outside")
		require.NoError(rt, err)
		require.Empty(rt, found)
		found, err = os.ReadDir(top)
		require.NoError(rt, err)
		require.Len(rt, found, 2)
	})
}

func FuzzArchive(f *testing.F) {
	entries := []*tar.Header{folder("d"), file("d/a", "a"), link("b", "d/a")}
	f.Add(tarOf(f, entries...))
	f.Add(gzipped(f, tarOf(f, entries...)))
	f.Add(zstandard(f, tarOf(f, entries...)))
	f.Add(zipOf(f, entries...))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir, root := directory(t)
		if err := archive(t, root, content); err != nil {
			_, invalid := errors.AsType[*unpack.InvalidError](err)
			require.True(t, invalid, "%v", err)
			return
		}
		_, err := tree.Of(dir)
		require.NoError(t, err)
	})
}
