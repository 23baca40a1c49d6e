package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/guest"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/pki"
)

// writeDisk writes onto a machine's disk what an image for nodes brings: configuration of the container runtime, of the
// pods' network and of kube-proxy. Nothing of it is good for joining the cluster.
func (c Cluster) writeDisk(m Machine, options MachineOptions) error {
	disk := c.Layout.machine(m.Name)
	if err := guest.MakeFolders(disk); err != nil {
		return err
	}
	files, err := c.machineFiles(m)
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := host.WriteFile(filepath.Join(guest.Upper(disk, "/etc"), path), content, 0o644); err != nil {
			return err
		}
	}
	if options.StartupScript != "" {
		script, err := os.ReadFile(options.StartupScript)
		if err != nil {
			return fmt.Errorf("--startup-script: %w", err)
		}
		if err := os.WriteFile(filepath.Join(disk, guest.DiskScript), script, 0o700); err != nil {
			return err
		}
	}
	return errors.Join(c.machineCredentials(m), c.machinePrograms(disk))
}

func (c Cluster) machineFiles(m Machine) (map[string][]byte, error) {
	v := templateValues(c.Layout, c.Options, "")
	v.NodeName, v.NodeIP = m.Name, m.Address
	v.NodePodCIDR = m.PodCIDR
	v.ContainerdRoot, v.ContainerdState = "/var/lib/containerd", "/run/containerd"
	v.ContainerdSocket, v.ContainerdOpt = "/run/containerd/containerd.sock", "/var/lib/containerd-opt"
	v.RegistryHosts, v.RuncRoot, v.CNIConf, v.IPAMData = "/etc/containerd/certs.d", "/run/runc", "/etc/cni/net.d", "/var/lib/cni/ipam"
	v.ProxyKubeconfig = "/etc/kube-proxy/kubeconfig"
	templates := map[string]string{
		"containerd/config.toml": "containerd.toml", "cni/net.d/10-localcluster.conflist": "cni.conflist", "kube-proxy/config.yaml": "kube-proxy.yaml",
	}
	for _, registry := range append([]string{c.Options.Registry()}, c.Options.Mirrors...) {
		templates[filepath.Join("containerd", "certs.d", registry, "hosts.toml")] = "hosts.toml"
	}
	files := map[string][]byte{
		"hostname":    []byte(m.Name + "\n"),
		"hosts":       fmt.Appendf(nil, "127.0.0.1 localhost\n%s %s\n", m.Address, m.Name),
		"resolv.conf": fmt.Appendf(nil, "nameserver %s\n", c.Options.NodeIP),
		// Control groups are shared with the host, where another kubelet has its own.
		"default/kubelet": fmt.Appendf(nil, "KUBELET_EXTRA_ARGS=\"--cgroup-root=%s --node-ip=%s\"\n", m.CgroupRoot, m.Address),
	}
	for path, name := range templates {
		content, err := render(name, v)
		if err != nil {
			return nil, err
		}
		files[path] = content
	}
	return files, nil
}

// machineCredentials gives the machine a serving certificate for its kubelet, so that the API server knows whom it asks for
// logs, and kube-proxy's kubeconfig, which in other clusters a DaemonSet brings. The kubelet's own credentials come from
// joining only.
func (c Cluster) machineCredentials(m Machine) error {
	ca, err := pki.LoadOrCreate(c.Layout.PKI(), "ca")
	if err != nil {
		return err
	}
	disk := c.Layout.machine(m.Name)
	request := pki.Request{CommonName: "system:node:" + m.Name, Hosts: []string{m.Address, m.Name, "127.0.0.1"}}
	if err := ca.IssueFiles(filepath.Join(disk, guest.DiskKubeletPKI), "kubelet", request); err != nil {
		return err
	}
	kubeconfig, err := os.ReadFile(c.Layout.kubeconfig("kube-proxy"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(guest.Upper(disk, "/etc"), "kube-proxy", "kubeconfig"), kubeconfig, 0o600)
}

func (c Cluster) machinePrograms(disk string) error {
	self := filepath.Join(disk, guest.DiskBin, "localcluster")
	_ = os.Remove(self)
	if err := os.Link(c.Layout.self(), self); err != nil {
		return err
	}
	for _, name := range []string{"systemctl", "kubeadm"} {
		content, err := templates.ReadFile("templates/machine-" + name + ".sh")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(disk, guest.DiskBin, name), content, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// copyImage copies one of the node's images to the runtime at a socket.
func (c Cluster) copyImage(ctx context.Context, name, socket string) error {
	name, err := c.nodeImage(ctx, name)
	if err != nil {
		return err
	}
	// Without --local the client may end before it has written all that the runtime streams to it.
	export := c.ctrCommand(ctx, c.Layout.containerdSocket(), "images", "export", "--local", "--platform", "linux/"+runtime.GOARCH, "-", name)
	var problem bytes.Buffer
	export.Stderr = &problem
	archive, err := export.StdoutPipe()
	if err != nil {
		return err
	}
	if err := export.Start(); err != nil {
		return err
	}
	_, err = c.ctrAt(ctx, socket, archive, "images", "import", "-")
	archive.Close() // so that the export ends also when the import has failed
	if failed := export.Wait(); failed != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", failed, bytes.TrimSpace(problem.Bytes())))
	}
	return err
}

func (c Cluster) ctrCommand(ctx context.Context, socket string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.Layout.program("ctr"), append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
}

func (c Cluster) ctrAt(ctx context.Context, socket string, input io.Reader, args ...string) (string, error) {
	cmd := c.ctrCommand(ctx, socket, args...)
	cmd.Stdin = input
	return host.Output(cmd)
}
