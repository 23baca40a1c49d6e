package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// bridge is the device that holds the node's address. A bridge without ports serves where the kernel
// has no dummy devices.
const bridge = "lc0"

// ruleComment marks the firewall rules of this cluster, by which they are found again.
const ruleComment = "localcluster"

// setUpNetwork gives the machine the node's address, forwards packets of pods and masquerades their traffic out of the cluster.
// It is idempotent.
func setUpNetwork(ctx context.Context, layout Layout, options Options) error {
	if err := refuseForeignNetwork(options); err != nil {
		return err
	}
	if err := saveSysctls(layout.run("sysctl.json")); err != nil {
		return err
	}
	if _, err := net.InterfaceByName(bridge); err != nil {
		if err := host.Run(ctx, "ip", "link", "add", bridge, "type", "bridge"); err != nil {
			return fmt.Errorf("make network device %s: %w", bridge, err)
		}
	}
	if err := errors.Join(
		host.Run(ctx, "ip", "address", "replace", options.NodeIP+"/32", "dev", bridge),
		host.Run(ctx, "ip", "link", "set", bridge, "up"),
		writeSysctl("net.ipv4.ip_forward", "1"),
	); err != nil {
		return err
	}
	for _, rule := range firewallRules(options) {
		if host.Run(ctx, "iptables", rule.arguments("-C")...) == nil {
			continue
		}
		if err := host.Run(ctx, "iptables", rule.arguments("-A")...); err != nil {
			return fmt.Errorf("add firewall rule: %w", err)
		}
	}
	return nil
}

type rule struct {
	table, chain string
	match        []string
	target       string
}

func firewallRules(options Options) []rule {
	pods := options.PodCIDR
	return []rule{
		// A container engine on the same machine may have set the default to drop.
		{table: "filter", chain: "FORWARD", match: []string{"-s", pods}, target: "ACCEPT"},
		{table: "filter", chain: "FORWARD", match: []string{"-d", pods}, target: "ACCEPT"},
		{table: "nat", chain: "POSTROUTING", match: []string{"-s", pods, "!", "-d", pods}, target: "MASQUERADE"},
	}
}

// arguments are the iptables arguments that apply action (-A, -C) to the rule. -w waits for others
// that change the rules at this moment.
func (r rule) arguments(action string) []string {
	args := append([]string{"-w", "5", "-t", r.table, action, r.chain}, r.match...)
	return append(args, "-m", "comment", "--comment", ruleComment, "-j", r.target)
}

// refuseForeignNetwork returns an error when another device already uses the node's address or network.
func refuseForeignNetwork(options Options) error {
	devices, err := net.Interfaces()
	if err != nil {
		return err
	}
	_, pods, err := net.ParseCIDR(options.PodCIDR)
	if err != nil {
		return err
	}
	for _, device := range devices {
		addresses, _ := device.Addrs()
		for _, address := range addresses {
			ip, network, err := net.ParseCIDR(address.String())
			if err != nil || device.Name == bridge {
				continue
			}
			// The cluster's own pods have devices with an address of the pod network, one host each.
			ones, _ := network.Mask.Size()
			if ip.String() == options.NodeIP || (pods.Contains(ip) && ones < 32) {
				return fmt.Errorf("network device %s already has the address %s: choose others with --node-ip and --pod-cidr", device.Name, address)
			}
		}
	}
	return nil
}

// removeStrayDevices removes the devices of pods whose node was killed, and whose state folder may be gone. Their routes would take the packets
// for pods of this node that get the same addresses.
func removeStrayDevices(ctx context.Context, pods string) error {
	routes, err := host.Output(exec.CommandContext(ctx, "ip", "-json", "route", "show", "root", pods))
	if err != nil {
		return fmt.Errorf("list the routes to pods: %w", err)
	}
	devices, err := podDevices([]byte(routes))
	if err != nil {
		return fmt.Errorf("read the routes to pods: %w", err)
	}
	for _, device := range devices {
		err = errors.Join(err, host.Run(ctx, "ip", "link", "delete", device))
	}
	return err
}

// podDevices are the devices behind the routes to single pods, as ip prints these in JSON.
func podDevices(routes []byte) ([]string, error) {
	var list []struct {
		Destination string `json:"dst"`
		Device      string `json:"dev"`
	}
	if len(routes) == 0 { // of a network that was never routed
		return nil, nil
	}
	if err := json.Unmarshal(routes, &list); err != nil {
		return nil, err
	}
	var devices []string
	for _, route := range list {
		if strings.HasPrefix(route.Device, "veth") && !strings.Contains(route.Destination, "/") && !slices.Contains(devices, route.Device) {
			devices = append(devices, route.Device)
		}
	}
	return devices, nil
}

// tearDownNetwork removes what setUpNetwork, kube-proxy, kubelet and the CNI plugins left on the host.
func tearDownNetwork(ctx context.Context, layout Layout) error {
	problems := []error{cleanFirewall(ctx, "iptables"), cleanFirewall(ctx, "ip6tables")}
	if _, err := net.InterfaceByName(bridge); err == nil {
		problems = append(problems, host.Run(ctx, "ip", "link", "delete", bridge))
	}
	// The CNI library keeps results here, with no way to choose another place.
	results, _ := filepath.Glob(filepath.Join("/var/lib/cni/results", networkName+"-*"))
	for _, result := range results {
		_ = os.Remove(result)
	}
	_ = os.Remove("/var/lib/cni/results") // fails when others use it, as intended
	_ = os.Remove("/var/lib/cni")
	return errors.Join(append(problems, restoreSysctls(layout.run("sysctl.json")))...)
}

// cleanFirewall loads the rules of one address family without those that belong to the cluster.
func cleanFirewall(ctx context.Context, family string) error {
	save, err := exec.LookPath(family + "-save")
	if err != nil {
		return nil // never installed, so there are no rules
	}
	rules, err := exec.CommandContext(ctx, save).Output()
	if err != nil {
		return nil // a kernel without this address family
	}
	clean, changed := withoutClusterRules(string(rules))
	if !changed {
		return nil
	}
	return host.RunWith(ctx, strings.NewReader(clean), family+"-restore", "-w", "5")
}

// ofCluster matches a line of iptables-save that declares or mentions a chain of Kubernetes or of the CNI plugins, and one with this
// cluster's comment.
var ofCluster = regexp.MustCompile(`(^|\s):?(KUBE-|CNI-HOSTPORT-|CNI-DN-|CNI-SN-)|--comment (` + ruleComment + ` |"` + ruleComment + `")`)

// withoutClusterRules removes what is of the cluster from the output of iptables-save.
func withoutClusterRules(saved string) (clean string, changed bool) {
	clean = strings.Join(slices.DeleteFunc(strings.SplitAfter(saved, "\n"), ofCluster.MatchString), "")
	return clean, clean != saved
}
