// Package cluster starts, watches and stops a Kubernetes cluster of processes on this machine.
package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// Options say what the cluster is like. They are saved when it is started, so that later commands need
// only know the state folder.
type Options struct {
	// Simulate asks for simulated nodes: no pod really runs, no root is needed.
	Simulate bool `json:"simulate"`
	// NodeIP is the address of the node and of the servers on it; unused in simulation (127.0.0.1).
	NodeIP string `json:"nodeIP"`
	// PodCIDR is the network of the pods, ServiceCIDR that of the services' cluster IPs.
	PodCIDR     string `json:"podCIDR"`
	ServiceCIDR string `json:"serviceCIDR"`
	// Ports are the TCP ports of the servers.
	Ports Ports `json:"ports"`
	// Mirrors are registry host names whose images the node takes from the cluster's own registry instead,
	// so that what is published there can be tried under its own name.
	Mirrors []string `json:"mirrors,omitempty"`
	// AuditLog asks for a JSON audit log of all requests, level Metadata, in logs/audit.log.
	AuditLog bool `json:"auditLog"`
	// ExtraArgs are further arguments by program ("kube-apiserver").
	ExtraArgs map[string][]string `json:"extraArgs,omitempty"`
	// Simulation describes the simulated nodes.
	Simulation Simulation `json:"simulation"`
}

// Simulation describes simulated nodes, all alike.
type Simulation struct {
	// Nodes is their number.
	Nodes int `json:"nodes"`
	// Pods, CPU and Memory are the allocatable resources of each.
	Pods   int    `json:"pods"`
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
	// Resources are further allocatable resources, such as nvidia.com/gpu=8.
	Resources map[string]string `json:"resources,omitempty"`
	// Labels are further node labels.
	Labels map[string]string `json:"labels,omitempty"`
	// Stages are the paths of files with further Stages: how simulated objects change over time.
	Stages []string `json:"stages,omitempty"`
}

// Ports are the TCP ports of the cluster's servers by the names in AllPorts.
type Ports map[string]int

// Port is a TCP port that a daemon serves.
type Port struct {
	Name string
	// Default is the usual port of Kubernetes.
	Default      int
	Daemon, What string
	// Flag chooses it; empty when only --port-offset changes it.
	Flag string
	// OnNode says that it is on the node's address, and not on the loopback only.
	OnNode bool
}

// AllPorts returns what is served where.
func AllPorts() []Port {
	return []Port{
		{"api", 6443, "kube-apiserver", "the API server", "api-port", true},
		{"etcd", 2379, "etcd", "etcd", "etcd-port", false},
		{"etcdPeer", 2380, "etcd", "etcd (peers)", "etcd-peer-port", false},
		{"controllerManager", 10257, "kube-controller-manager", "the controller manager", "controller-manager-port", false},
		{"scheduler", 10259, "kube-scheduler", "the scheduler", "scheduler-port", false},
		{"kubelet", 10250, "kubelet", "the kubelet", "kubelet-port", true},
		{"kubeletHealth", 10248, "kubelet", "the kubelet (health)", "", false},
		{"proxyHealth", 10256, "kube-proxy", "kube-proxy (health)", "", false},
		{"proxyMetrics", 10249, "kube-proxy", "kube-proxy (metrics)", "", false},
		{"dnsHealth", 10253, "coredns", "the name server (health)", "", false},
		{"dnsReady", 10254, "coredns", "the name server (ready)", "", false},
		{"registry", 5000, "registry", "the image registry", "registry-port", true},
		{"kwok", 10247, "kwok", "kwok", "kwok-port", false},
	}
}

// DefaultPorts returns the usual ports of Kubernetes for a live cluster, and others for a simulated
// one, so that one of each can run side by side; offset is added to all.
func DefaultPorts(simulate bool, offset int) Ports {
	if simulate {
		offset += 10000
	}
	ports := Ports{}
	for _, port := range AllPorts() {
		ports[port.Name] = port.Default + offset
	}
	return ports
}

// Validate returns an error that names the option at fault.
func (o Options) Validate() error {
	if ip, err := netip.ParseAddr(o.NodeIP); err != nil || !ip.Is4() || ip.IsLoopback() {
		return fmt.Errorf("--node-ip %q: want an IPv4 address that is not loopback", o.NodeIP)
	}
	for flag, cidr := range map[string]string{"pod-cidr": o.PodCIDR, "service-cidr": o.ServiceCIDR} {
		if prefix, err := netip.ParsePrefix(cidr); err != nil || !prefix.Addr().Is4() {
			return fmt.Errorf("--%s %q: want an IPv4 network such as 10.78.0.0/16", flag, cidr)
		}
	}
	for _, mirror := range o.Mirrors {
		if !registryName.MatchString(mirror) {
			return fmt.Errorf("--mirror %q: want the host name of a registry, such as registry.example.com or registry.example.com:5000", mirror)
		}
	}
	if o.Simulate && o.Simulation.Nodes < 1 {
		return errors.New("--nodes: want at least 1")
	}
	for program := range o.ExtraArgs {
		if !slices.Contains(extendable, program) {
			return fmt.Errorf("--extra-arg %s=...: no such program; known are %s", program, strings.Join(extendable, ", "))
		}
	}
	return nil
}

// registryName is how the host of a registry is written in the names of its images: with a dot or a port, else
// it would be taken for the first part of a repository's path.
var registryName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?$|^[a-z0-9-]+:[0-9]+$`)

// extendable are the programs that Options.ExtraArgs may name.
var extendable = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "etcd", "kwok"}

// Address is where the API server and the node's servers listen.
func (o Options) Address() string {
	if o.Simulate {
		return "127.0.0.1"
	}
	return o.NodeIP
}

// APIServer is the URL of the API server.
func (o Options) APIServer() string { return fmt.Sprintf("https://%s:%d", o.Address(), o.Ports["api"]) }

// Registry is the host and port of the image registry.
func (o Options) Registry() string { return fmt.Sprintf("%s:%d", o.NodeIP, o.Ports["registry"]) }

// Published returns the two names of an image that is pushed as name: push is where this machine uploads it, in
// the cluster's registry; pull is how pods name it. They differ for the registries in Mirrors.
func (o Options) Published(name string) (push, pull string) {
	for _, host := range o.Mirrors {
		if rest, ok := strings.CutPrefix(name, host+"/"); ok {
			return o.Registry() + "/" + rest, name
		}
	}
	push = o.Registry() + "/" + strings.TrimPrefix(name, o.Registry()+"/")
	return push, push
}

// nthAddress returns the n-th address of a network.
func nthAddress(cidr string, n int) (string, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return "", err
	}
	address := prefix.Masked().Addr()
	for range n {
		address = address.Next()
	}
	return address.String(), nil
}

// save writes the options into the state folder.
func (o Options) save(layout Layout) error { return host.SaveJSON(layout.optionsFile(), o) }

// LoadOptions reads the options with which the cluster in layout was started; ok is false when none was.
func LoadOptions(layout Layout) (options Options, ok bool, err error) {
	ok, err = host.LoadJSON(layout.optionsFile(), &options)
	return options, ok, err
}

// DefaultTimeout is how long `up` waits for each condition of readiness.
const DefaultTimeout = 90 * time.Second
