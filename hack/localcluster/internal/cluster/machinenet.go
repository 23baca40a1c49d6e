package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/guest"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// connect creates the machine's network namespace, a veth pair to the node's bridge and the host's routes to its pods.
func (c Cluster) connect(ctx context.Context, m Machine) error {
	for _, args := range [][]string{
		{"netns", "add", m.namespace()},
		{"link", "add", m.device(), "type", "veth", "peer", "name", guest.Device, "netns", m.namespace()},
		{"link", "set", m.device(), "master", bridge, "up"},
		{"route", "replace", m.Address + "/32", "dev", bridge, "src", c.Options.NodeIP},
		{"route", "replace", m.PodCIDR, "via", m.Address, "dev", bridge, "src", c.Options.NodeIP},
	} {
		if err := host.Run(ctx, "ip", args...); err != nil {
			return fmt.Errorf("network of machine %s: %w", m.Name, err)
		}
	}
	for _, rule := range machineRules(c.Options, m) {
		if err := host.Run(ctx, "iptables", rule.arguments("-A")...); err != nil {
			return fmt.Errorf("network of machine %s: %w", m.Name, err)
		}
	}
	return nil
}

// machineRules forward the machine's packets and masquerade them as this host's.
func machineRules(options Options, m Machine) []rule {
	return []rule{
		{table: "filter", chain: "FORWARD", match: []string{"-s", m.Address}, target: "ACCEPT"},
		{table: "filter", chain: "FORWARD", match: []string{"-d", m.Address}, target: "ACCEPT"},
		{table: "nat", chain: "POSTROUTING", match: []string{"-s", m.Address, "!", "-o", bridge, "!", "-d", options.PodCIDR}, target: "MASQUERADE"},
	}
}

// disconnect removes what connect and makeCgroup made. It is idempotent.
func (c Cluster) disconnect(ctx context.Context, m Machine) error {
	var problems []error
	for _, rule := range machineRules(c.Options, m) {
		for host.Run(ctx, "iptables", rule.arguments("-D")...) == nil {
			continue // until there is none of that kind
		}
	}
	if _, err := net.InterfaceByName(bridge); err == nil {
		_ = host.Run(ctx, "ip", "route", "delete", m.PodCIDR, "dev", bridge) // fails when there is none
		_ = host.Run(ctx, "ip", "route", "delete", m.Address+"/32", "dev", bridge)
	}
	if _, err := net.InterfaceByName(m.device()); err == nil {
		problems = append(problems, host.Run(ctx, "ip", "link", "delete", m.device()))
	}
	if _, err := os.Stat(filepath.Join("/run/netns", m.namespace())); err == nil {
		problems = append(problems, host.Run(ctx, "ip", "netns", "delete", m.namespace()))
	}
	removeCgroup(m.CgroupRoot)
	return errors.Join(problems...)
}

// makeCgroup makes a control group in each hierarchy. On cgroup v1, a group without CPUs and memory nodes cannot run processes.
func makeCgroup(path string) error {
	for _, hierarchy := range hierarchies() {
		if !isCgroup(hierarchy) {
			continue
		}
		group := filepath.Join(hierarchy, path)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make control group: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(hierarchy, file))
			if err != nil {
				continue // another hierarchy, or the second version of control groups
			}
			if err := os.WriteFile(filepath.Join(group, file), value, 0o644); err != nil {
				return fmt.Errorf("make control group: %w", err)
			}
		}
	}
	return nil
}

// isCgroup says whether control groups are mounted at a folder.
func isCgroup(dir string) bool {
	const v1, v2 = 0x27e0eb, 0x63677270
	var info syscall.Statfs_t
	return syscall.Statfs(dir, &info) == nil && (info.Type == v1 || info.Type == v2)
}
