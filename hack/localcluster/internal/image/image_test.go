package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// write makes a file with its folders.
func write(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// content returns the entries of the image's file system and the content of its files.
func content(t *testing.T, img v1.Image) (headers map[string]*tar.Header, files map[string]string) {
	t.Helper()
	headers, files = map[string]*tar.Header{}, map[string]string{}
	reader := mutate.Extract(img)
	defer reader.Close()
	archive := tar.NewReader(reader)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return headers, files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		headers[filepath.Clean(header.Name)], files[filepath.Clean(header.Name)] = header, string(data)
	}
}

func build(t *testing.T, spec Spec) *Image {
	t.Helper()
	built, err := Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := built.Close(); err != nil {
			t.Error(err)
		}
	})
	return built
}

func TestBuildFromFilesAndReadBack(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "manager"), "program", 0o700)
	write(t, filepath.Join(dir, "conf", "a.yaml"), "a: 1\n", 0o640)
	if err := os.Symlink("a.yaml", filepath.Join(dir, "conf", "current")); err != nil {
		t.Fatal(err)
	}
	built := build(t, Spec{
		Files: []File{
			{Source: filepath.Join(dir, "manager"), Path: "/usr/bin/manager", Mode: 0o755},
			{Source: filepath.Join(dir, "conf"), Path: "/etc/demo"},
		},
		Accounts:   true,
		Entrypoint: []string{"/usr/bin/manager"}, Cmd: []string{"--help"}, User: "65532:65532",
		Env: []string{"A=1"}, Labels: map[string]string{"l": "v"}, WorkDir: "/tmp",
		Annotations: map[string]string{"note": "x"},
	})

	// Through the archive and back, as another tool reads it.
	archive := filepath.Join(dir, "image.tar")
	file, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(built.WriteArchive(file, []string{"demo:dev", "10.77.0.1:5000/demo:dev"}), file.Close()); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("docker.io/library/demo:dev")
	if err != nil {
		t.Fatal(err)
	}
	read, err := tarball.ImageFromPath(archive, &tag)
	if err != nil {
		t.Fatal(err)
	}
	// Fast, because the full check takes it that every layer is compressed.
	if err := validate.Image(built, validate.Fast); err != nil {
		t.Errorf("built image is not valid: %v", err)
	}
	config, err := read.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	wantConfig := v1.Config{
		Entrypoint: []string{"/usr/bin/manager"}, Cmd: []string{"--help"}, User: "65532:65532",
		Env:    []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "A=1"},
		Labels: map[string]string{"l": "v"}, WorkingDir: "/tmp",
	}
	if !reflect.DeepEqual(config.Config, wantConfig) {
		t.Errorf("configuration\n%+v\nwant\n%+v", config.Config, wantConfig)
	}
	if manifest, err := built.Manifest(); err != nil || manifest.Annotations["note"] != "x" {
		t.Errorf("annotations %v, error %v", manifest.Annotations, err)
	}

	headers, files := content(t, read)
	for path, want := range map[string]struct {
		kind    byte
		mode    int64
		owner   int
		content string
	}{
		"usr":              {kind: tar.TypeDir, mode: 0o755},
		"usr/bin/manager":  {kind: tar.TypeReg, mode: 0o755, content: "program"},
		"etc/demo/a.yaml":  {kind: tar.TypeReg, mode: 0o640, content: "a: 1\n"},
		"etc/demo/current": {kind: tar.TypeSymlink, mode: 0o777},
		"etc/passwd":       {kind: tar.TypeReg, mode: 0o644, content: passwd},
		"etc/group":        {kind: tar.TypeReg, mode: 0o644, content: group},
		"tmp":              {kind: tar.TypeDir, mode: 0o1777},
		"home/trainer":     {kind: tar.TypeDir, mode: 0o755, owner: 1000},
	} {
		header := headers[path]
		if header == nil {
			t.Errorf("/%s is missing", path)
			continue
		}
		if header.Typeflag != want.kind || header.Mode&0o7777 != want.mode || header.Uid != want.owner || files[path] != want.content {
			t.Errorf("/%s is %c %o of %d with %q, want %+v", path, header.Typeflag, header.Mode, header.Uid, files[path], want)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("/%s has the time %s", path, header.ModTime)
		}
	}
}

func TestBuildIsReproducible(t *testing.T) {
	digest := func() v1.Hash {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "b"), "b", 0o644)
		write(t, filepath.Join(dir, "a"), "a", 0o644)
		built := build(t, Spec{Files: []File{{Source: dir, Path: "/data"}}, Accounts: true, Labels: map[string]string{"x": "1", "y": "2"}})
		got, err := built.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := digest()
	time.Sleep(10 * time.Millisecond)
	if second := digest(); second != first {
		t.Errorf("the same files gave %s and then %s", first, second)
	}
}

func TestRootFileSystem(t *testing.T) {
	root := t.TempDir()
	old := time.Unix(1_600_000_000, 0)
	write(t, filepath.Join(root, "lib", "module.py"), "x = 1\n", 0o644)
	if err := os.Chtimes(filepath.Join(root, "lib", "module.py"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(root, "lib", "module.py"), filepath.Join(root, "lib", "same.py")); err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(t.TempDir(), "app.py")
	write(t, app, "import module\n", 0o644)

	built := build(t, Spec{RootFS: root, Files: []File{{Source: app, Path: "/app.py"}}})
	layers, err := built.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, error %v; want 2", len(layers), err)
	}
	headers, files := content(t, built)
	if got := headers["lib/module.py"]; got == nil || !got.ModTime.Equal(old) || files["lib/module.py"] != "x = 1\n" {
		t.Errorf("lib/module.py is %+v with %q, want its content and time kept", got, files["lib/module.py"])
	}
	if got := headers["lib/same.py"]; got == nil || got.Typeflag != tar.TypeLink || got.Linkname != "lib/module.py" {
		t.Errorf("second name of a file is %+v, want a hard link", got)
	}
	if files["app.py"] != "import module\n" {
		t.Errorf("app.py has %q", files["app.py"])
	}

	// The same tree given as a plain tar file makes the same layer, without a copy of it.
	plain, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	data, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "root.tar")
	write(t, archive, string(data), 0o644)
	fromTar := build(t, Spec{RootFS: archive})
	if copies, err := os.ReadDir(fromTar.dir); err != nil || len(copies) != 0 {
		t.Errorf("a plain tar file was copied to %v, error %v", copies, err)
	}
	tarLayers, err := fromTar.Layers()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := layers[0].Digest()
	if got, err := tarLayers[0].Digest(); err != nil || got != want {
		t.Errorf("layer of the tar file is %s, error %v; want %s", got, err, want)
	}
}

func TestCloseRemovesTemporaryFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	built, err := Build(Spec{Accounts: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := built.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFilesWithAnOwnerKeepPermissions(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "db", "data"), "x", 0o660)
	if err := os.Chmod(filepath.Join(dir, "db"), 0o770); err != nil {
		t.Fatal(err)
	}
	headers, _ := content(t, build(t, Spec{Files: []File{
		{Source: dir, Path: "/tmp/cache", Owner: &Owner{UID: 1001, GID: 5}}, {Source: dir, Path: "/other"},
	}}))
	for path, want := range map[string]struct {
		mode     int64
		uid, gid int
	}{
		"tmp": {mode: 0o755}, "tmp/cache/db": {0o770, 1001, 5}, "tmp/cache/db/data": {0o660, 1001, 5},
		"other/db": {mode: 0o755}, "other/db/data": {mode: 0o660},
	} {
		header := headers[path]
		if header == nil {
			t.Errorf("/%s is missing", path)
			continue
		}
		if header.Mode&0o7777 != want.mode || header.Uid != want.uid || header.Gid != want.gid {
			t.Errorf("/%s is %o of %d:%d, want %+v", path, header.Mode, header.Uid, header.Gid, want)
		}
	}
}

func TestParseFile(t *testing.T) {
	tests := []struct {
		text    string
		want    File
		wantErr bool
	}{
		{text: "bin/manager:/manager", want: File{Source: "bin/manager", Path: "/manager"}},
		{text: "m:/manager:0755", want: File{Source: "m", Path: "/manager", Mode: 0o755}},
		{text: "m", wantErr: true},
		{text: "m:manager", wantErr: true},
		{text: ":/manager", wantErr: true},
		{text: "m:/manager:rwx", wantErr: true},
		{text: "m:/manager:0755:more", wantErr: true},
		{text: "m:/manager:0640:1001:0", want: File{Source: "m", Path: "/manager", Mode: 0o640, Owner: &Owner{UID: 1001}}},
		{text: "m:/manager::1:2", want: File{Source: "m", Path: "/manager", Owner: &Owner{UID: 1, GID: 2}}},
		{text: "m:/manager::nobody:0", wantErr: true},
		{text: "m:/manager::0:-1", wantErr: true},
	}
	for _, test := range tests {
		got, err := ParseFile(test.text)
		if (err != nil) != test.wantErr || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%q: got %+v, error %v; want %+v, an error: %t", test.text, got, err, test.want, test.wantErr)
		}
	}
}

func TestFullName(t *testing.T) {
	for tag, want := range map[string]string{
		"demo":                      "docker.io/library/demo:latest",
		"demo:dev":                  "docker.io/library/demo:dev",
		"team/demo:dev":             "docker.io/team/demo:dev",
		"localhost/demo/pause:1":    "localhost/demo/pause:1",
		"10.77.0.1:5000/demo:dev":   "10.77.0.1:5000/demo:dev",
		"example.com/team/demo:dev": "example.com/team/demo:dev",
	} {
		if got, err := FullName(tag); err != nil || got != want {
			t.Errorf("%s: got %q, error %v; want %q", tag, got, err, want)
		}
	}
	for _, tag := range []string{"", "UPPER:dev", "demo:dev:dev"} {
		if got, err := FullName(tag); err == nil {
			t.Errorf("%q: got %q, want an error", tag, got)
		}
	}
}

func TestArchiveIsWrittenTheSameEachTime(t *testing.T) {
	built := build(t, Spec{Accounts: true})
	var first, second bytes.Buffer
	if err := errors.Join(built.WriteArchive(&first, []string{"a:1"}), built.WriteArchive(&second, []string{"a:1"})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one image differ")
	}
}

func TestStampFollowsFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stamp := func(spec Spec) string {
		t.Helper()
		got, err := spec.Stamp()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	write("one")
	spec := Spec{Files: []File{{Source: dir, Path: "/bin"}}, User: "1:1"}
	first := stamp(spec)
	if again := stamp(spec); again != first {
		t.Error("the stamp changed without a reason")
	}
	other := spec
	other.User = "2:2"
	if stamp(other) == first {
		t.Error("another user has the same stamp")
	}
	write("other")
	if stamp(spec) == first {
		t.Error("another file has the same stamp")
	}
	if _, err := (Spec{Files: []File{{Source: path + ".none", Path: "/x"}}}).Stamp(); err == nil {
		t.Error("no error for a file that does not exist")
	}
}
