// Package component knows the programs that the cluster is made of and builds them from source.
//
// Each component is a Go module of its own under components/, with its versions pinned by go.mod and
// verified by go.sum, because their dependencies do not agree with each other. To add one, make its
// folder and add an entry to All.
package component

import "strings"

// Use says which clusters need a component.
type Use int

const (
	// Assets are also needed by tests that start only an API server.
	Assets Use = 1 << iota
	// Live is a cluster whose node runs pods.
	Live
	// Simulated is a cluster whose nodes are simulated.
	Simulated
)

// Component is one Go module under components/ and the programs built from it.
type Component struct {
	// Name is the name of the folder under components/.
	Name string
	// Module is the module path whose version in go.mod is the component's version; empty for own code.
	Module string
	// Programs are the executables to build.
	Programs []Program
	// Tags are the build tags.
	Tags []string
	// LinkFlags returns what to add to the linker flags, given the version; may be nil.
	LinkFlags func(version string) []string
	// Use says who needs it.
	Use Use
	// FirstBuild is roughly how long a build with an empty build cache takes on two cores, for the
	// one who waits; empty when it is not worth a word.
	FirstBuild string
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
	return []Component{
		{
			Name: "kubernetes", Module: "k8s.io/kubernetes", FirstBuild: "about 6 minutes",
			Programs: []Program{{Name: "kubernetes", Package: ".", Links: []string{
				"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubeadm", "kubectl",
			}}},
			LinkFlags: kubernetesVersion,
			Use:       Assets | Live | Simulated,
		},
		{
			Name: "containerd", Module: "github.com/containerd/containerd/v2", FirstBuild: "about 1 minute",
			Programs: []Program{
				{Name: "containerd", Package: "github.com/containerd/containerd/v2/cmd/containerd"},
				{Name: "containerd-shim-runc-v2", Package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
				{Name: "ctr", Package: "github.com/containerd/containerd/v2/cmd/ctr"},
			},
			Tags:      []string{"no_btrfs", "no_zfs", "no_devmapper"},
			LinkFlags: containerdVersion,
			Use:       Live,
		},
		{
			Name:     "pause",
			Programs: []Program{{Name: "pause", Package: "."}},
			Use:      Live,
		},
		{
			Name: "coredns", Module: "github.com/coredns/coredns", FirstBuild: "about 1 minute",
			Programs: []Program{{Name: "coredns", Package: "."}},
			Use:      Live,
		},
		{
			Name: "registry", Module: "github.com/distribution/distribution/v3", FirstBuild: "about 30 seconds",
			Programs: []Program{{Name: "registry", Package: "."}},
			Use:      Live,
		},
		{
			Name: "kwok", Module: "sigs.k8s.io/kwok", FirstBuild: "about 1 minute",
			Programs: []Program{{Name: "kwok", Package: "sigs.k8s.io/kwok/cmd/kwok"}},
			Use:      Simulated,
		},
	}
}

// For returns the components that use needs, in build order.
func For(use Use) []Component {
	var needed []Component
	for _, c := range All() {
		if c.Use&use != 0 {
			needed = append(needed, c)
		}
	}
	return needed
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

// containerdVersion makes containerd report its version without "+unknown".
func containerdVersion(version string) []string {
	return []string{"-X", "github.com/containerd/containerd/v2/version.Version=" + version}
}
