package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// kubeletCommand is what kubeadm's unit for systemd runs, with the two files that it takes arguments from.
const kubeletCommand = `for file in /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do if [ -f "$file" ]; then . "$file"; fi; done
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
  --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`

type machine struct {
	config                               Config
	containerd, kubelet, kubeProxy, sshd *service
}

// Supervise runs the machine's services, serves systemctl and does what Google's guest agent does at a start.
func Supervise(ctx context.Context, disk string) error {
	config, err := Load(disk)
	if err != nil {
		return err
	}
	m := &machine{
		config:     config,
		containerd: &service{name: "containerd", command: []string{bin + "/containerd", "--config", "/etc/containerd/config.toml", "--log-level", "warn"}},
		kubelet:    &service{name: "kubelet", command: []string{"/bin/sh", "-c", kubeletCommand}},
		kubeProxy:  &service{name: "kube-proxy", command: []string{bin + "/kube-proxy", "--config", "/etc/kube-proxy/config.yaml"}},
		sshd:       &service{name: "sshd", command: []string{"/usr/sbin/sshd", "-D", "-e", "-f", sshdConfig}},
	}
	m.kubelet.prepare = m.installServingCertificate
	if err := m.serve(); err != nil {
		return err
	}
	m.containerd.start()
	if _, err := os.Stat("/var/lib/kubelet/config.yaml"); err == nil {
		// It had joined before this restart.
		m.startKubelet()
	}
	if err := waitForFile(ctx, filepath.Join(config.Disk, DiskImages)); err != nil {
		return err
	}
	if err := m.runAgent(ctx); err != nil {
		// As on a real machine: it stays up, so that the problem can be examined.
		fmt.Println("guest agent:", err)
	}
	<-ctx.Done()
	return nil
}

func (m *machine) startKubelet() {
	m.kubelet.start()
	m.kubeProxy.start()
}

// installServingCertificate puts the certificate, by which the API server knows the kubelet, where the kubelet looks for
// one before it makes its own.
func (m *machine) installServingCertificate() error {
	const target = "/var/lib/kubelet/pki"
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"kubelet.crt", "kubelet.key"} {
		content, err := os.ReadFile(filepath.Join(m.config.Disk, DiskKubeletPKI, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(target, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func waitForFile(ctx context.Context, path string) error {
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return true, err
	})
}
