package cluster

import (
	"fmt"
	"path/filepath"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// Layout says where the files of one cluster are.
type Layout struct {
	// Source is the folder of the component modules.
	Source string
	// State is the folder that holds everything of this cluster.
	State string
	// Bin is the folder of the programs; several clusters can share it.
	Bin string
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (l Layout) Kubeconfig() string { return filepath.Join(l.State, "kubeconfig") }

// Version returns the version of the component called name.
func (l Layout) Version(name string) (string, error) {
	return component.Named(name).Version(filepath.Join(l.Source, name))
}

// Path is the path of what has a relative one in the state folder.
func (l Layout) Path(relative string) string { return filepath.Join(l.State, relative) }

// PKI is the folder of keys and certificates.
func (l Layout) PKI() string { return l.data("pki") }

// run holds what is needed only while the cluster runs: configuration, sockets, process records.
func (l Layout) run(elem ...string) string { return l.path("run", elem) }

// data holds what survives a restart when asked to: etcd, images, volumes, keys.
func (l Layout) data(elem ...string) string { return l.path("data", elem) }
func (l Layout) log(name string) string     { return filepath.Join(l.State, "logs", name+".log") }

func (l Layout) program(name string) string    { return filepath.Join(l.Bin, name) }
func (l Layout) self() string                  { return l.run("bin", "localcluster") }
func (l Layout) kubeconfig(name string) string { return l.run("kubeconfig", name) }
func (l Layout) containerdSocket() string      { return l.run("containerd.sock") }

// containersHome is the folder below run/ that can be the HOME of programs of the containers/image library.
const containersHome = "containers-home"

// ContainersHome is a home folder with which programs of the containers/image library find the cluster's registry
// and take images without signatures.
func (l Layout) ContainersHome() string { return l.run(containersHome) }

// RegistriesConf is the path of the part of ContainersHome that leads to the registry (CONTAINERS_REGISTRIES_CONF).
func (l Layout) RegistriesConf() string {
	return l.run(containersHome, ".config", "containers", "registries.conf")
}

func (l Layout) machine(name string, elem ...string) string {
	return l.data(append([]string{"machines", name}, elem...)...)
}

func (l Layout) optionsFile() string      { return l.data("options.json") }
func (l Layout) processes() process.Table { return process.NewTable(l.run("processes")) }

func (l Layout) path(top string, elem []string) string {
	return filepath.Join(append([]string{l.State, top}, elem...)...)
}

// validate checks what would otherwise fail in a way that is hard to understand.
func (l Layout) validate() error {
	// The kernel's limit for the path of a socket is 107 bytes.
	if socket := l.containerdSocket(); len(socket) > 100 {
		return fmt.Errorf("--state %s: the path is too long by %d characters for the sockets inside", l.State, len(socket)-100)
	}
	return nil
}
