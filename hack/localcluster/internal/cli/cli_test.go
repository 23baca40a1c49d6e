package cli

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/image"
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
	parse := func(args ...string) (cluster.Options, error) {
		var u upFlags
		flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
		u.register(flags)
		err := flags.Parse(args)
		return u.resolve(), err
	}
	got, err := parse("--simulate", "--port-offset=100", "--etcd-port=9000", "--extra-arg=etcd=--v=1", "--node-resource=nvidia.com/gpu=8")
	if err != nil {
		t.Fatal(err)
	}
	want := cluster.DefaultPorts(true, 100)
	want["etcd"] = 9000
	if !reflect.DeepEqual(got.Ports, want) {
		t.Errorf("ports %+v, want %+v", got.Ports, want)
	}
	if !reflect.DeepEqual(got.ExtraArgs, map[string][]string{"etcd": {"--v=1"}}) || got.Simulation.Resources["nvidia.com/gpu"] != "8" {
		t.Errorf("extra arguments %v, resources %v", got.ExtraArgs, got.Simulation.Resources)
	}
	for _, bad := range []string{"--extra-arg=etcd", "--node-resource==8", "--node-label=zone"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func parseImage(args ...string) (image.Spec, error) {
	var i imageFlags
	flags := pflag.NewFlagSet("build-image", pflag.ContinueOnError)
	i.register(flags)
	if err := flags.Parse(args); err != nil {
		return image.Spec{}, err
	}
	i.spec.Labels = i.labels()
	return i.spec, i.validate()
}

func TestImageFlags(t *testing.T) {
	spec, err := parseImage("--tag=demo:dev", "--output=x.tar", `--entrypoint=["/a", "b"]`, "--cmd=c")
	if err != nil || !reflect.DeepEqual(spec.Entrypoint, []string{"/a", "b"}) || !reflect.DeepEqual(spec.Cmd, []string{"c"}) {
		t.Errorf("got %+v, error %v", spec, err)
	}
	for want, args := range map[string][]string{
		"--tag is needed":  {"--output=x.tar"},
		"--output, --load": {"--tag=demo:dev"},
		"--entrypoint":     {"--tag=demo:dev", "--load", "--entrypoint=[broken"},
		"image name":       {"--tag=DEMO", "--load"},
		"octal":            {"--tag=demo", "--load", "--file=a:/b:rwx"},
	} {
		if _, err := parseImage(args...); err == nil || !strings.Contains(err.Error(), want) {
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
	spec, err := parseImage("--tag=demo:dev", "--load", "--label=b=from the flag", "--label=c=d", "--labels-from="+annotations)
	want := map[string]string{"a": "from the file", "b": "from the flag", "c": "d"}
	if err != nil || !reflect.DeepEqual(spec.Labels, want) {
		t.Errorf("got %v, error %v; want %v", spec.Labels, err, want)
	}
	for _, path := range []string{filepath.Join(dir, "none.yaml"), write("other.yaml", "a: b\n"), write("broken.yaml", "annotations: [1\n")} {
		if _, err := parseImage("--tag=demo:dev", "--load", "--labels-from="+path); err == nil || !strings.Contains(err.Error(), path) {
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
