package cluster

import (
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"text/template"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

//go:embed templates
var templates embed.FS

const (
	// NodeName is the name of the live node.
	NodeName = "localcluster"
	// PauseImage is the image of the container that holds a pod's namespaces; it is made at start.
	PauseImage = "localhost/localcluster/pause:1"
	// Provisioner is the name by which the default StorageClass asks for volumes.
	Provisioner = "localcluster.dcnlab.com/host-path"
	// networkName is the name of the pods' network; its parts on the host are found by it again.
	networkName = "localcluster"
	// cniBin is where Debian puts the CNI plugins.
	cniBin = "/usr/lib/cni"
)

// values is what the configuration templates may use.
type values struct {
	Layout
	Options

	NodeName, NetworkName, PauseImage, Provisioner string
	// NodeIP is that of a machine in the files of a machine.
	NodeIP string
	// NodePodCIDR is the part of PodCIDR that the node's own pods are in; machines have the rest.
	NodePodCIDR                                                      string
	ContainerdRoot, ContainerdState, ContainerdSocket, ContainerdOpt string
	RegistryHosts, Runc, RuncRoot, CNIConf, IPAMData                 string
	CNIBin, Upstream                                                 []string
	ProxyKubeconfig, KubernetesVersion                               string
	// SearchPath has the cluster's programs first: containerd finds its shim there, runc a criu.
	SearchPath string
	// CAPEM is the certificate that a joining node reads.
	CAPEM string
}

func templateValues(layout Layout, options Options, kubernetesVersion string) values {
	runc, err := exec.LookPath("runc")
	if err != nil {
		runc = "runc" // simulation does not use it
	}
	return values{
		Layout: layout, Options: options,
		NodeName: NodeName, NetworkName: networkName, PauseImage: PauseImage, Provisioner: Provisioner,
		NodeIP: options.NodeIP, NodePodCIDR: nodePodCIDR(options.PodCIDR),
		ContainerdRoot: layout.data("containerd"), ContainerdState: layout.run("containerd"),
		ContainerdSocket: layout.containerdSocket(), ContainerdOpt: layout.data("containerd-opt"),
		RegistryHosts: layout.run("registry-hosts"), Runc: runc, RuncRoot: layout.run("runc"),
		CNIConf: layout.run("cni"), CNIBin: []string{cniBin}, IPAMData: layout.run("ipam"),
		Upstream:        upstreamNameservers("/etc/resolv.conf"),
		ProxyKubeconfig: layout.kubeconfig("kube-proxy"), KubernetesVersion: kubernetesVersion,
		SearchPath: layout.Bin + ":" + os.Getenv("PATH"),
		CAPEM:      readCA(layout),
	}
}

// readCA returns the certificate of the cluster's authority, as base64; empty when there is none yet.
func readCA(layout Layout) string {
	content, err := os.ReadFile(layout.pki("ca.crt"))
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(content)
}

func configFiles(options Options) map[string]string {
	files := map[string]string{}
	add := func(names ...string) {
		for _, name := range names {
			files[name] = name
		}
	}
	add("audit-policy.yaml", "authentication.yaml", "addons.yaml")
	if options.Simulate {
		add("kwok.yaml")
		return files
	}
	add("joining.yaml", "containerd.toml", "kubelet.yaml", "kube-proxy.yaml", "Corefile", "registry.yml")
	files["cni/10-localcluster.conflist"] = "cni.conflist"
	files[filepath.Join(containersHome, ".config", "containers", "registries.conf")] = "registries.conf"
	files[filepath.Join(containersHome, ".config", "containers", "policy.json")] = "policy.json"
	for _, host := range append([]string{options.Registry()}, options.Mirrors...) {
		files[filepath.Join("registry-hosts", host, "hosts.toml")] = "hosts.toml"
	}
	return files
}

func writeConfig(layout Layout, options Options, kubernetesVersion string) error {
	v := templateValues(layout, options, kubernetesVersion)
	for file, name := range configFiles(options) {
		content, err := render(name, v)
		if err != nil {
			return err
		}
		if err := host.WriteFile(layout.run(file), content, 0o644); err != nil {
			return err
		}
	}
	// Pods with dnsPolicy Default ask the same server; the host's search domains would only slow lookups down.
	return os.WriteFile(layout.run("resolv.conf"), []byte("nameserver "+options.NodeIP+"\n"), 0o644)
}

func render(name string, v values) ([]byte, error) { return Render(templates, "templates/"+name, v) }

// Render fills in the template at name in files. The delimiters are << and >>, because kwok's stages are themselves templates
// with braces; "quote" quotes a text or a list for JSON, YAML and TOML, "base64" encodes a text.
func Render(files fs.FS, name string, v any) ([]byte, error) {
	functions := template.FuncMap{
		"quote": func(v any) (string, error) {
			content, err := json.Marshal(v)
			return string(content), err
		},
		"base64": func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
	}
	parsed, err := template.New(path.Base(name)).Delims("<<", ">>").Funcs(functions).Option("missingkey=error").ParseFS(files, name)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	var out bytes.Buffer
	if err := parsed.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("render %s: %w", name, err)
	}
	return out.Bytes(), nil
}
