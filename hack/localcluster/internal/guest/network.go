package guest

import (
	"context"
	"net"
	"os"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// Device is the machine's end of the veth pair to the host.
const Device = "eth0"

// metadataAddress is where clouds have their metadata server.
const metadataAddress = "169.254.169.254"

// setUpNetwork configures the machine's own network namespace, in which Device is already.
func setUpNetwork(c Config) error {
	commands := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "address", "replace", c.Address + "/24", "dev", Device},
		{"ip", "link", "set", Device, "up"},
		{"ip", "route", "replace", "default", "via", c.Gateway, "dev", Device},
		// Traffic of its pods out of the cluster is masqueraded.
		{"iptables", "-t", "nat", "-A", "POSTROUTING", "-s", c.PodCIDR, "!", "-d", c.ClusterCIDR, "-j", "MASQUERADE"},
	}
	if c.Metadata != "" {
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			commands = append(commands, []string{
				"iptables", "-t", "nat", "-A", chain, "-d", metadataAddress + "/32", "-p", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination", c.Metadata,
			})
		}
	}
	for _, args := range commands {
		if err := host.Run(context.Background(), args[0], args[1:]...); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	_, err := net.InterfaceByName(Device)
	return err
}
