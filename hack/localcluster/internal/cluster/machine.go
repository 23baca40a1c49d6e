package cluster

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/guest"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// Machine is a simulated VM beside the node: processes in their own namespaces, without a connection to the cluster until they
// join it.
type Machine struct {
	guest.Config
	// Number gives it its addresses: the last part of its own, and its network of pods.
	Number int `json:"number"`
}

// MachineOptions say what a new machine is like.
type MachineOptions struct {
	// Address it shall have; the next free one when empty.
	Address string
	// Metadata is the host and port of a metadata server on this host; none when empty.
	Metadata string
	// StartupScript is a file that a machine without metadata server runs at each start.
	StartupScript string
	// Images are those of the node's images that the machine shall have, too.
	Images []string
}

var machineName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// The numbers of machines. The addresses with the numbers below belong to the network and to the node.
const firstMachine, lastMachine = 2, 127

// nodePodCIDR is the first half of the pods' network; machines have the second.
func nodePodCIDR(pods string) string {
	prefix, err := netip.ParsePrefix(pods)
	if err != nil || prefix.Bits() >= 30 {
		return pods
	}
	return netip.PrefixFrom(prefix.Masked().Addr(), prefix.Bits()+1).String()
}

func addressesOf(options Options, number int) (address, pods string, err error) {
	node, err := netip.ParseAddr(options.NodeIP)
	if err != nil {
		return "", "", err
	}
	prefix, err := netip.ParsePrefix(options.PodCIDR)
	if err != nil {
		return "", "", err
	}
	if prefix.Bits() > 16 {
		return "", "", fmt.Errorf("machines need a network of pods of /16 or larger, and --pod-cidr of the cluster is %s", options.PodCIDR)
	}
	bytes := node.As4()
	bytes[3] = byte(number)
	first := prefix.Masked().Addr().As4()
	first[2] = byte(128 + number)
	return netip.AddrFrom4(bytes).String(), netip.PrefixFrom(netip.AddrFrom4(first), 24).String(), nil
}

// device is the host's end of the veth pair to the machine.
func (m Machine) device() string    { return fmt.Sprintf("lcm%d", m.Number) }
func (m Machine) namespace() string { return "localcluster-" + m.Name }
func (m Machine) record() string    { return "machine-" + m.Name }

// process is its first one; ok is false when it is switched off.
func (c Cluster) machineProcess(m Machine) (record process.Record, ok bool) {
	record, ok, _ = c.Layout.processes().Running(m.record())
	return record, ok
}

func (c Cluster) machines() ([]Machine, error) {
	files, err := filepath.Glob(c.Layout.machine("*", guest.DiskConfig))
	if err != nil {
		return nil, err
	}
	var list []Machine
	for _, file := range files {
		var m Machine
		if _, err := host.LoadJSON(file, &m); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func (c Cluster) getMachine(name string) (m Machine, ok bool, err error) {
	ok, err = host.LoadJSON(c.Layout.machine(name, guest.DiskConfig), &m)
	return m, ok, err
}

func (c Cluster) saveMachine(m Machine) error {
	return host.SaveJSON(c.Layout.machine(m.Name, guest.DiskConfig), m)
}

// lockMachines keeps two commands from taking the same number; the second waits.
func (c Cluster) lockMachines() (unlock func(), err error) {
	return host.Lock(c.Layout.data("machines", "lock"), func() error { return nil })
}
