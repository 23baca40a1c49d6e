package guest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// mount gives the machine a view of the host's file system in which what it changes is its own.
func mount(c Config) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Mounts of the node's own pods, which this copy of the mount table would keep alive.
	if err := host.UnmountBelow(c.State); err != nil {
		return err
	}
	// By descriptor, because the folders may lie below one that is about to be covered.
	sources := map[string]string{
		"/var/lib/kubelet": DiskKubelet, "/var/lib/containerd": DiskContainerd, "/tmp": "tmp", "/root": "root",
	}
	descriptors := map[string]int{}
	for target, source := range sources {
		if err := open(descriptors, target, filepath.Join(c.Disk, source)); err != nil {
			return err
		}
	}
	// Wrappers of programs name them by the path that they have on the host.
	for _, path := range []string{c.Programs, c.Disk} {
		if err := open(descriptors, path, path); err != nil {
			return err
		}
	}
	programs := fmt.Sprintf("lowerdir=%s:%s", filepath.Join(c.Disk, DiskBin), c.Programs)
	overlays := map[string]string{bin: programs}
	for _, dir := range Overlays() {
		overlays[dir] = fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, Upper(c.Disk, dir), work(c.Disk, dir))
	}
	// All of them are made of the host's own folders, so none may cover another's parts before that is made: they are
	// prepared aside and moved.
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	aside := map[string]string{}
	for dir, options := range overlays {
		place := "/run/" + strings.ReplaceAll(strings.Trim(dir, "/"), "/", "-")
		if err := os.Mkdir(place, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount("overlay", place, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount overlay of %s (%s): %w", dir, options, err)
		}
		aside[dir] = place
	}
	for dir, place := range aside {
		if err := syscall.Mount(place, dir, "", syscall.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move overlay of %s: %w", dir, err)
		}
		if err := os.Remove(place); err != nil {
			return err
		}
	}
	// The shortest first, so that none covers another.
	for _, target := range slices.SortedFunc(maps.Keys(descriptors), func(a, b string) int { return len(a) - len(b) }) {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", descriptors[target]), target, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
		_ = syscall.Close(descriptors[target])
	}
	for _, dir := range []string{"/run/lock", "/run/sshd", filepath.Dir(ConfigPath)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink(c.Disk, ConfigPath); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// As systemd has it; the kubelet shares mounts with containers that ask for it.
	return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

func open(descriptors map[string]int, target, path string) error {
	const oPath = 0x200000 // O_PATH: the folder itself, not its content
	fd, err := syscall.Open(path, oPath|syscall.O_CLOEXEC|syscall.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	descriptors[target] = fd
	return nil
}
