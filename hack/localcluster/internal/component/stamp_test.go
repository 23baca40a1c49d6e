package component

import (
	"os"
	"path/filepath"
	"testing"
)

// folder makes a component folder with the given files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func source() map[string]string {
	return map[string]string{
		"go.mod":  "module x\n\ngo 1.26.0\n\nrequire example.com/tool v1.2.3\n",
		"go.sum":  "example.com/tool v1.2.3 h1:abc=\n",
		"main.go": "package main\n",
	}
}

func tool() Component {
	return Component{Name: "tool", Module: "example.com/tool", Programs: []Program{{Name: "tool", Package: ".", Links: []string{"alias"}}}}
}

func TestStampChangesWithWhatIsBuilt(t *testing.T) {
	stamp := func(c Component, files map[string]string, goVersion string) string {
		t.Helper()
		got, err := c.Stamp(folder(t, files), goVersion)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	base := stamp(tool(), source(), "go1.26.8")
	if again := stamp(tool(), source(), "go1.26.8"); again != base {
		t.Error("the same source in another folder has another stamp")
	}
	tagged := tool()
	tagged.Tags = []string{"small"}
	flagged := tool()
	flagged.LinkFlags = func(version string) []string { return []string{"-X", "v=" + version} }
	changed := func(name, content string) map[string]string {
		files := source()
		files[name] = content
		return files
	}
	for what, other := range map[string]string{
		"another Go version":      stamp(tool(), source(), "go1.27.0"),
		"other build tags":        stamp(tagged, source(), "go1.26.8"),
		"other link flags":        stamp(flagged, source(), "go1.26.8"),
		"another version":         stamp(tool(), changed("go.mod", "module x\nrequire example.com/tool v1.2.4\n"), "go1.26.8"),
		"other dependencies":      stamp(tool(), changed("go.sum", "example.com/tool v1.2.3 h1:def=\n"), "go1.26.8"),
		"other code":              stamp(tool(), changed("main.go", "package main // changed\n"), "go1.26.8"),
		"one more file of source": stamp(tool(), changed("more.go", "package main\n"), "go1.26.8"),
	} {
		if other == base {
			t.Errorf("%s has the same stamp", what)
		}
	}
}

func TestCurrent(t *testing.T) {
	bin := t.TempDir()
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := tool()
	if c.Current(bin, "s1") {
		t.Error("current before it was built")
	}
	write(filepath.Join(bin, "tool"), "program")
	write(stampFile(bin, "tool"), "s1\n")
	if c.Current(bin, "s1") {
		t.Error("current although a link is missing")
	}
	if err := replaceLink("tool", filepath.Join(bin, "alias")); err != nil {
		t.Fatal(err)
	}
	if !c.Current(bin, "s1") {
		t.Error("not current although everything is there")
	}
	if c.Current(bin, "s2") {
		t.Error("current although built from something else")
	}
}

func TestVersion(t *testing.T) {
	dir := folder(t, source())
	if got, err := tool().Version(dir); err != nil || got != "v1.2.3" {
		t.Errorf("got %q, error %v; want v1.2.3", got, err)
	}
	if got, err := (Component{Name: "own"}).Version(dir); err != nil || got != "own" {
		t.Errorf("own code: got %q, error %v", got, err)
	}
	if _, err := (Component{Name: "x", Module: "example.com/other"}).Version(dir); err == nil {
		t.Error("no error for a module that is not required")
	}
}

// TestAllComponentsArePinned checks the real folders.
func TestAllComponentsArePinned(t *testing.T) {
	names := map[string]string{}
	for _, c := range All() {
		if _, err := c.Version(filepath.Join("..", "..", "components", c.Name)); err != nil {
			t.Errorf("component %s: %v", c.Name, err)
		}
		for _, program := range c.Programs {
			for _, name := range append([]string{program.Name}, program.Links...) {
				if other, taken := names[name]; taken {
					t.Errorf("program %s is in both %s and %s", name, other, c.Name)
				}
				names[name] = c.Name
			}
		}
	}
	for _, use := range []Use{Assets, Live, Simulated} {
		if needed := For(use); len(needed) == 0 || needed[0].Name != "kubernetes" {
			t.Errorf("use %d needs %v, want kubernetes first", use, needed)
		}
	}
	for _, c := range For(Cluster) {
		if c.Use&(Tools|OLM|OLMv1|Scorecard) != 0 {
			t.Errorf("a start of a cluster would build %s", c.Name)
		}
	}
}

func TestKubernetesVersion(t *testing.T) {
	got := kubernetesVersion("v1.36.3")
	want := map[string]bool{
		"k8s.io/component-base/version.gitVersion=v1.36.3": true,
		"k8s.io/component-base/version.gitMajor=1":         true,
		"k8s.io/component-base/version.gitMinor=36":        true,
	}
	for _, flag := range got {
		delete(want, flag)
	}
	if len(want) > 0 {
		t.Errorf("flags %v lack %v", got, want)
	}
}
