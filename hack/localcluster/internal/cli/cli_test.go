package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
)

func TestFoldersAreFoundFromInsideTheRepository(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	components := filepath.Join(root, "hack", "localcluster", "components")
	inside := filepath.Join(root, "hack", "localcluster", "internal")
	for _, dir := range []string{components, inside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{root, inside} {
		t.Chdir(from)
		got, err := folders{}.layout()
		want := cluster.Layout{Source: components, State: filepath.Join(root, ".localcluster"), Bin: filepath.Join(root, ".localcluster", "bin")}
		if err != nil || got != want {
			t.Errorf("from %s: got %+v, error %v; want %+v", from, got, err, want)
		}
	}
	got, err := folders{state: "/elsewhere"}.layout()
	if err != nil || got.State != "/elsewhere" || got.Bin != filepath.Join(root, ".localcluster", "bin") {
		t.Errorf("another state folder: got %+v, error %v; want the programs shared", got, err)
	}
}

func TestRealPathResolvesLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got, err := realPath(filepath.Join(dir, "link", "not", "there"))
	if want := filepath.Join(dir, "not", "there"); err != nil || got != want {
		t.Errorf("got %s, error %v; want %s", got, err, want)
	}
}

func TestUpOptions(t *testing.T) {
	cmd := upCommand(&folders{})
	if err := cmd.ParseFlags([]string{"--simulate", "--port-offset=100", "--etcd-port=9000"}); err != nil {
		t.Fatal(err)
	}
	u := upFlags{offset: 100, extraArgs: []string{"etcd=--v=1"}, resources: []string{"nvidia.com/gpu=8"}}
	u.options.Simulate = true
	u.ports.Etcd = 9000
	got, err := u.resolve()
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.DefaultPorts(true).Offset(100)
	want.Etcd = 9000
	if got.Ports != want {
		t.Errorf("ports %+v, want %+v", got.Ports, want)
	}
	if !reflect.DeepEqual(got.ExtraArgs, map[string][]string{"etcd": {"--v=1"}}) || got.Simulation.Resources["nvidia.com/gpu"] != "8" {
		t.Errorf("extra arguments %v, resources %v", got.ExtraArgs, got.Simulation.Resources)
	}
	for _, bad := range []upFlags{{extraArgs: []string{"etcd"}}, {resources: []string{"=8"}}, {labels: []string{"zone"}}} {
		if _, err := bad.resolve(); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

func TestImageFlags(t *testing.T) {
	good := imageFlags{tags: []string{"demo:dev"}, output: "x.tar", entrypoint: `["/a", "b"]`, cmd: "c"}
	spec, err := good.resolve()
	if err != nil || !reflect.DeepEqual(spec.Entrypoint, []string{"/a", "b"}) || !reflect.DeepEqual(spec.Cmd, []string{"c"}) {
		t.Errorf("got %+v, error %v", spec, err)
	}
	for want, flags := range map[string]imageFlags{
		"--tag is needed":  {output: "x.tar"},
		"--output, --load": {tags: []string{"demo:dev"}},
		"--entrypoint":     {tags: []string{"demo:dev"}, load: true, entrypoint: "[broken"},
		"image name":       {tags: []string{"DEMO"}, load: true},
		"octal":            {tags: []string{"demo"}, load: true, files: []string{"a:/b:rwx"}},
	} {
		if _, err := flags.resolve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

func TestLabelsFromABundle(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	annotations := write("annotations.yaml", "annotations:\n  a: from the file\n  b: from the file\n")
	flags := imageFlags{tags: []string{"demo:dev"}, load: true, labelFiles: []string{annotations}, labels: []string{"b=from the flag", "c=d"}}
	spec, err := flags.resolve()
	want := map[string]string{"a": "from the file", "b": "from the flag", "c": "d"}
	if err != nil || !reflect.DeepEqual(spec.Labels, want) {
		t.Errorf("got %v, error %v; want %v", spec.Labels, err, want)
	}
	for _, path := range []string{filepath.Join(dir, "none.yaml"), write("other.yaml", "a: b\n"), write("broken.yaml", "annotations: [1\n")} {
		flags.labelFiles = []string{path}
		if _, err := flags.resolve(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names the file", path, err)
		}
	}
}

func TestTruthy(t *testing.T) {
	for value, want := range map[string]bool{"": false, "0": false, "false": false, "False": false, "1": true, "yes": true} {
		if got := truthy(value); got != want {
			t.Errorf("%q: got %t, want %t", value, got, want)
		}
	}
}
