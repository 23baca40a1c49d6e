package cluster

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"
)

// live returns the options of an ordinary live cluster, and simulated those of a simulated one.
func live() Options {
	return Options{NodeIP: "10.77.0.1", PodCIDR: "10.78.0.0/16", ServiceCIDR: "10.96.0.0/16", Ports: DefaultPorts(false, 0)}
}

func simulated() Options {
	o := live()
	o.Simulate, o.Ports, o.Simulation = true, DefaultPorts(true, 0), Simulation{Nodes: 2, Pods: 128, CPU: "8", Memory: "32Gi"}
	return o
}

func TestConfigurationIsWellFormed(t *testing.T) {
	for name, options := range map[string]Options{"live": live(), "simulated": simulated()} {
		t.Run(name, func(t *testing.T) {
			layout := Layout{State: filepath.Join(t.TempDir(), `with "quotes"`), Bin: "/bin"}
			if err := writeConfig(layout, options, "v1.36.3"); err != nil {
				t.Fatal(err)
			}
			for file := range configFiles(options) {
				content, err := os.ReadFile(layout.run(file))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(content), "<<") || strings.Contains(string(content), "<no value>") {
					t.Errorf("%s was not filled in:\n%s", file, content)
				}
				checkSyntax(t, file, content)
			}
		})
	}
}

func checkSyntax(t *testing.T, file string, content []byte) {
	t.Helper()
	switch filepath.Ext(file) {
	case ".yaml", ".yml":
		for _, document := range bytes.Split(content, []byte("\n---\n")) {
			var parsed map[string]any
			if err := yaml.UnmarshalStrict(document, &parsed); err != nil {
				t.Errorf("%s: %v in\n%s", file, err, document)
			}
		}
	case ".conflist", ".json":
		if !json.Valid(content) {
			t.Errorf("%s is not JSON:\n%s", file, content)
		}
	}
}

func TestMirrors(t *testing.T) {
	options := live()
	options.Mirrors = []string{"registry.example.com", "other.example.com:8443"}
	files := configFiles(options)
	for _, host := range []string{"10.77.0.1:5000", "registry.example.com", "other.example.com:8443"} {
		if files[filepath.Join("registry-hosts", host, "hosts.toml")] != "hosts.toml" {
			t.Errorf("containerd does not know where images of %s are", host)
		}
	}
	content, err := render("registries.conf", templateValues(Layout{State: "/state"}, options, "v1.36.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"[[registry]]\nlocation = \"10.77.0.1:5000\"\ninsecure = true\n",
		"[[registry]]\nprefix = \"registry.example.com\"\nlocation = \"10.77.0.1:5000\"\ninsecure = true\n",
		"prefix = \"other.example.com:8443\"",
	} {
		if !strings.Contains(string(content), want) {
			t.Errorf("no %q in\n%s", want, content)
		}
	}
}

func TestPublished(t *testing.T) {
	options := live()
	options.Mirrors = []string{"registry.example.com"}
	for name, want := range map[string][2]string{
		"demo:dev":                            {"10.77.0.1:5000/demo:dev", "10.77.0.1:5000/demo:dev"},
		"10.77.0.1:5000/demo:dev":             {"10.77.0.1:5000/demo:dev", "10.77.0.1:5000/demo:dev"},
		"registry.example.com/team/demo:v1":   {"10.77.0.1:5000/team/demo:v1", "registry.example.com/team/demo:v1"},
		"registry.example.com.evil/team/demo": {"10.77.0.1:5000/registry.example.com.evil/team/demo", "10.77.0.1:5000/registry.example.com.evil/team/demo"},
		"team/registry.example.com/demo:v1":   {"10.77.0.1:5000/team/registry.example.com/demo:v1", "10.77.0.1:5000/team/registry.example.com/demo:v1"},
	} {
		push, pull := options.Published(name)
		if push != want[0] || pull != want[1] {
			t.Errorf("%s: push %s, pull %s; want %v", name, push, pull, want)
		}
	}
}

func TestStampedDigest(t *testing.T) {
	const listed = `REF TYPE DIGEST SIZE PLATFORMS LABELS
localhost/a/b:v1 application/vnd.oci.image.manifest.v1+json sha256:0123 1.0 MiB linux/amd64 io.cri-containerd.image=managed,localcluster.dcnlab.com/stamp=now
`
	if got := stampedDigest(listed, "now"); got != "sha256:0123" {
		t.Errorf("got %q", got)
	}
	for what, text := range map[string]string{"another stamp": strings.ReplaceAll(listed, "=now", "=before"), "no image": "REF TYPE DIGEST SIZE PLATFORMS LABELS\n", "nothing": ""} {
		if got := stampedDigest(text, "now"); got != "" {
			t.Errorf("%s: got %q", what, got)
		}
	}
}

func TestKubeletConfiguration(t *testing.T) {
	layout := Layout{State: "/state"}
	content, err := render("kubelet.yaml", templateValues(layout, live(), "v1.36.3"))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"failCgroupV1": false, "cgroupDriver": "cgroupfs", "serializeImagePulls": false, "maxPods": float64(110),
		"containerRuntimeEndpoint": "unix:///state/run/containerd.sock", "address": "10.77.0.1",
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
	}
	anonymous := got["authentication"].(map[string]any)["anonymous"].(map[string]any)
	if anonymous["enabled"] != false {
		t.Error("the kubelet accepts anonymous requests")
	}
	for _, field := range []string{"systemReserved", "kubeReserved"} {
		if _, set := got[field]; set {
			t.Errorf("%s takes resources from pods", field)
		}
	}
}

func TestCorefileForwardsOnlyWhenThereIsAnUpstream(t *testing.T) {
	v := templateValues(Layout{State: "/state"}, live(), "v1.36.3")
	for _, test := range []struct {
		upstream     []string
		want, forbid string
	}{
		{upstream: []string{"192.0.2.53"}, want: "forward . 192.0.2.53 {", forbid: "NXDOMAIN"},
		{upstream: nil, want: "rcode NXDOMAIN", forbid: "forward"},
	} {
		v.Upstream = test.upstream
		content, err := render("Corefile", v)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), test.want) || strings.Contains(string(content), test.forbid) {
			t.Errorf("upstream %v: want %q and no %q in\n%s", test.upstream, test.want, test.forbid, content)
		}
	}
}

func TestUpstreamNameservers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	content := "# comment\nsearch example.org\nnameserver 127.0.0.53\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\nnameserver 2001:db8::53\nnameserver nonsense\n"
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := upstreamNameservers(file), []string{"192.0.2.53", "2001:db8::53"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := upstreamNameservers(file + ".none"); got != nil {
		t.Errorf("no file: got %v", got)
	}
}

func TestRenderAnyTemplate(t *testing.T) {
	files := fstest.MapFS{
		"templates/good.yaml": {Data: []byte("a: << quote .Name >>\nb: << base64 .Name >>\n")},
		"templates/bad.yaml":  {Data: []byte("a: << .Missing >>\n")},
	}
	values := map[string]string{"Name": `with "quotes"`}
	got, err := Render(files, "templates/good.yaml", values)
	if want := "a: \"with \\\"quotes\\\"\"\nb: d2l0aCAicXVvdGVzIg==\n"; err != nil || string(got) != want {
		t.Errorf("got %q, error %v; want %q", got, err, want)
	}
	for _, name := range []string{"templates/bad.yaml", "templates/none.yaml"} {
		if got, err := Render(files, name, values); err == nil {
			t.Errorf("%s: got %q and no error", name, got)
		}
	}
}
