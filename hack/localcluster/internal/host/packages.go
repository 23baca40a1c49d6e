// Package host looks at and prepares the machine: Debian packages, disk space, ports.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Package is a Debian package and a file by which to see that it, or something in its place, is installed.
type Package struct {
	// Name is the name of the Debian package.
	Name string
	// Program is a program looked up on the PATH, or an absolute path.
	Program string
}

// NodePackages returns what a node that runs pods needs from Debian.
func NodePackages() []Package {
	return []Package{
		{Name: "runc", Program: "runc"},
		{Name: "containernetworking-plugins", Program: "/usr/lib/cni/ptp"},
		{Name: "iptables", Program: "iptables"},
		{Name: "iproute2", Program: "ip"},
		{Name: "conntrack", Program: "conntrack"},
		{Name: "ethtool", Program: "ethtool"},
		{Name: "socat", Program: "socat"},
		{Name: "mount", Program: "mount"},
	}
}

// MachinePackages returns what a machine beside the node needs from Debian in addition.
func MachinePackages() []Package {
	return []Package{
		{Name: "openssh-server", Program: "/usr/sbin/sshd"},
		{Name: "sudo", Program: "sudo"},
		{Name: "passwd", Program: "/usr/sbin/useradd"},
	}
}

// ImagePackages returns what images of helpers are made from: the one program whose file is also cp and tar.
func ImagePackages() []Package {
	return []Package{{Name: "busybox-static", Program: "busybox"}}
}

// Missing returns those of packages whose program is not there.
func Missing(packages []Package) []Package {
	return slices.DeleteFunc(slices.Clone(packages), func(p Package) bool {
		_, err := exec.LookPath(p.Program)
		return err == nil
	})
}

// Install installs the missing ones of packages with apt-get, and does nothing when there are none.
func Install(ctx context.Context, packages []Package, out io.Writer) error {
	missing := Missing(packages)
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, len(missing))
	for i, p := range missing {
		names[i] = p.Name
	}
	list := strings.Join(names, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these are missing and there is no apt-get to install them with: %s; install them with this system's package manager", list)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("missing Debian packages: run: sudo apt-get install --no-install-recommends %s", list)
	}
	fmt.Fprintf(out, "installing Debian packages: %s\n", list)
	// An unreachable third-party source makes update fail although Debian's own lists are fresh; whether
	// that matters shows in the installation.
	updateOutput, _ := apt(ctx, "update")
	args := append([]string{"install", "-y", "--no-install-recommends"}, names...)
	if output, err := apt(ctx, args...); err != nil {
		return fmt.Errorf("apt-get install %s: %w\n%s\nbefore that, apt-get update said:\n%s", list, err, Tail(output, 12), Tail(updateOutput, 12))
	}
	if still := Missing(missing); len(still) > 0 {
		return errors.New("package " + still[0].Name + " is installed but " + still[0].Program + " is not there")
	}
	return nil
}

func apt(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	output, err := cmd.CombinedOutput()
	return string(output), err
}
