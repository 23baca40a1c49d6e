// Package component knows the programs that the cluster is made of and builds them from source.
//
// Each component is a Go module of its own under components/, with its versions pinned by go.mod and
// verified by go.sum, because their dependencies do not agree with each other. To add one, make its
// folder and add an entry to All.
package component

import (
	"path"
	"slices"
	"strings"
	"time"
)

// Use says which clusters need a component.
type Use int

const (
	// Assets are also needed by tests that start only an API server, or a registry.
	Assets Use = 1 << iota
	// Live is a cluster whose node runs pods.
	Live
	// Simulated is a cluster whose nodes are simulated.
	Simulated
	// Tools are commands for people and scripts who make operators: opm, operator-sdk.
	Tools
	// OLM is the Operator Lifecycle Manager in a live cluster.
	OLM
	// OLMv1 is the second generation of the Operator Lifecycle Manager in a live cluster.
	OLMv1
	// Scorecard is the image of operator-sdk's own scorecard tests.
	Scorecard
	// Cluster are all uses that a start of a cluster may have.
	Cluster = Assets | Live | Simulated
)

// Component is one Go module under components/ and the programs built from it.
type Component struct {
	// Name is the name of the folder under components/.
	Name string
	// Module is the module path whose version in go.mod is the component's version; empty for own code.
	Module string
	// packages are those of Module whose programs are built; "name=package" for one that is not called as its folder is.
	packages []string
	// Programs are the executables to build, also those of packages; one of the component's own where nothing is said.
	Programs []Program
	// Tags are the build tags.
	Tags []string
	// VersionVariables are string variables of packages of Module that the linker sets to the version, so that the programs report it.
	VersionVariables []string
	// LinkFlags returns further linker flags, given the version; may be nil.
	LinkFlags func(version string) []string
	// Use says who needs it.
	Use Use
	// FirstBuild is roughly how long a build with an empty build cache takes on two cores; zero when it is short.
	FirstBuild time.Duration
}

// Program is one executable of a component.
type Program struct {
	// Name is the file name in the binary folder.
	Name string
	// Package is the package to build; "." is the component's own.
	Package string
	// Links are further names for the same file.
	Links []string
}

// All returns every component, in the order in which they are built.
func All() []Component {
	components := []Component{
		{
			Name: "kubernetes", Module: "k8s.io/kubernetes", FirstBuild: 6 * time.Minute,
			Programs: []Program{{Name: "kubernetes", Package: ".", Links: []string{
				"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubeadm", "kubectl",
			}}},
			LinkFlags: kubernetesVersion,
			Use:       Assets | Live | Simulated,
		},
		{
			Name: "containerd", Module: "github.com/containerd/containerd/v2", FirstBuild: time.Minute,
			packages:         []string{"cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"},
			Tags:             []string{"no_btrfs", "no_zfs", "no_devmapper"},
			VersionVariables: []string{"version.Version"},
			Use:              Live,
		},
		{Name: "pause", Use: Live},
		{Name: "coredns", Module: "github.com/coredns/coredns", FirstBuild: time.Minute, Use: Live},
		{Name: "registry", Module: "github.com/distribution/distribution/v3", FirstBuild: 30 * time.Second, Use: Assets | Live},
		{Name: "kwok", Module: "sigs.k8s.io/kwok", FirstBuild: time.Minute, packages: []string{"cmd/kwok"}, Use: Simulated},
		{
			Name: "opm", Module: "github.com/operator-framework/operator-registry", FirstBuild: 2 * time.Minute,
			packages:         []string{"cmd/opm"},
			Programs:         []Program{{Name: "grpc_health_probe", Package: "github.com/grpc-ecosystem/grpc-health-probe"}},
			Tags:             []string{"json1", "containers_image_openpgp"},
			VersionVariables: []string{"cmd/opm/version.opmVersion"},
			Use:              Tools | OLM,
		},
		{
			Name: "operator-sdk", Module: "github.com/operator-framework/operator-sdk", FirstBuild: 3 * time.Minute,
			packages:         []string{"cmd/operator-sdk", "images/scorecard-test"},
			Tags:             []string{"containers_image_openpgp"},
			VersionVariables: []string{"internal/version.Version", "internal/version.GitVersion", "internal/version.ImageVersion"},
			Use:              Tools | Scorecard,
		},
		{
			Name: "olm", Module: "github.com/operator-framework/operator-lifecycle-manager", FirstBuild: 3 * time.Minute,
			packages: []string{"olm-operator=cmd/olm", "catalog-operator=cmd/catalog", "cmd/package-server", "util/cpb", "cmd/copy-content"},
			Tags:     []string{"json1", "containers_image_openpgp"}, VersionVariables: []string{"pkg/version.OLMVersion"},
			Use: OLM,
		},
		{
			Name: "operator-controller", Module: "github.com/operator-framework/operator-controller", FirstBuild: 3 * time.Minute,
			packages:         []string{"cmd/catalogd", "cmd/operator-controller"},
			Tags:             []string{"containers_image_openpgp"},
			VersionVariables: []string{"internal/shared/version.version"},
			Use:              OLMv1,
		},
	}
	for i := range components {
		c := &components[i]
		var programs []Program
		for _, folder := range c.packages {
			name := path.Base(folder)
			if before, after, renamed := strings.Cut(folder, "="); renamed {
				name, folder = before, after
			}
			programs = append(programs, Program{Name: name, Package: c.Module + "/" + folder})
		}
		c.Programs = append(programs, c.Programs...)
		if len(c.Programs) == 0 {
			c.Programs = []Program{{Name: c.Name, Package: "."}}
		}
	}
	return components
}

// For returns the components that use needs, in build order.
func For(use Use) []Component {
	return slices.DeleteFunc(All(), func(c Component) bool { return c.Use&use == 0 })
}

// Named returns the component called name, which has to be one of All.
func Named(name string) Component {
	for _, c := range All() {
		if c.Name == name {
			return c
		}
	}
	panic("no component is called " + name)
}

// kubernetesVersion makes the programs report the version of the module they were built from, as an
// official build does; without it they call themselves v0.0.0-master and clients refuse the skew.
func kubernetesVersion(version string) []string {
	const pkg = "k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return []string{
		"-X", pkg + "gitVersion=" + version,
		"-X", pkg + "gitMajor=" + major,
		"-X", pkg + "gitMinor=" + minor,
		"-X", pkg + "gitTreeState=clean",
		"-X", pkg + "buildDate=1970-01-01T00:00:00Z",
	}
}
