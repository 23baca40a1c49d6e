// Package guest is what runs inside of a machine: its first process, its services and the agent that asks the metadata
// server what to do. The host side is in package cluster.
package guest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// Config is the machine's configuration, which the host writes onto the machine's disk, and knows the machine by.
type Config struct {
	// Name is the machine's host name.
	Name string `json:"name"`
	// Disk is the folder, on the host, that holds everything of the machine.
	Disk string `json:"disk"`
	// Programs is the folder of the cluster's programs, State that of the whole cluster.
	Programs string `json:"programs"`
	State    string `json:"state"`
	// Address of the machine, in a network of 256 addresses; Gateway is the host.
	Address string `json:"address"`
	Gateway string `json:"gateway"`
	// PodCIDR is the network of the machine's own pods, ClusterCIDR that of all pods.
	PodCIDR     string `json:"podCIDR"`
	ClusterCIDR string `json:"clusterCIDR"`
	// Metadata is the host and port of the metadata server, to which 169.254.169.254 leads; empty for none.
	Metadata string `json:"metadata,omitempty"`
	// CgroupRoot is the control group below which the kubelet puts pods.
	CgroupRoot string `json:"cgroupRoot"`
}

// Files and folders on the disk, which the host fills and the machine mounts.
const (
	// DiskConfig is the Config, DiskImages the file whose presence says that the container images are loaded.
	DiskConfig = "guest.json"
	DiskImages = "images-loaded"
	// DiskScript is a startup script for a machine without metadata server.
	DiskScript = "startup-script"
	// DiskBin are programs of the machine's own, before those of the cluster on the PATH.
	DiskBin = "bin"
	// DiskKubeletPKI holds the kubelet's serving certificate, signed by the cluster's authority.
	DiskKubeletPKI = "kubelet-pki"
	// DiskKubelet and DiskContainerd are not overlays: file systems are mounted inside.
	DiskKubelet    = "kubelet"
	DiskContainerd = "containerd"
)

// Overlays are the folders of the host that the machine sees and changes only for itself.
func Overlays() []string { return []string{"/etc", "/var", "/home", "/opt"} }

// Upper is the folder on the disk with what the machine has changed below a folder of Overlays.
func Upper(disk, dir string) string { return filepath.Join(disk, "changes"+dir) }

// work is a folder that the kernel needs beside Upper.
func work(disk, dir string) string { return filepath.Join(disk, "work"+dir) }

// MakeFolders makes the folders of a disk.
func MakeFolders(disk string) error {
	dirs := []string{DiskBin, DiskKubeletPKI, DiskKubelet, DiskContainerd, "tmp", "root"}
	for i, dir := range dirs {
		dirs[i] = filepath.Join(disk, dir)
	}
	for _, dir := range Overlays() {
		dirs = append(dirs, Upper(disk, dir), work(disk, dir))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.Chmod(filepath.Join(disk, "tmp"), 0o777|os.ModeSticky)
}

// Load reads the Config of a disk.
func Load(disk string) (Config, error) {
	var c Config
	found, err := host.LoadJSON(filepath.Join(disk, DiskConfig), &c)
	if err == nil && !found {
		err = fmt.Errorf("%s has no %s", disk, DiskConfig)
	}
	return c, err
}
