package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/guest"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// MachineUp creates a machine unless it exists, starts it, and returns when its runtime has its images. The output of its
// startup script is on its console, the log of that name.
func (c Cluster) MachineUp(ctx context.Context, name string, options MachineOptions) error {
	begin := time.Now()
	if os.Geteuid() != 0 {
		return errors.New("a machine needs root: use sudo")
	}
	if c.Options.Simulate {
		return errors.New("a simulated cluster has no machines: start a live one")
	}
	if !machineName.MatchString(name) {
		return fmt.Errorf("machine %q: want a name of at most 63 of a-z, 0-9 and -, that begins with a letter", name)
	}
	if err := host.Install(ctx, host.MachinePackages(), c.Out); err != nil {
		return err
	}
	m, fresh, err := c.provide(ctx, name, options)
	if err != nil {
		return err
	}
	if err := c.writeDisk(m, options); err != nil {
		return err
	}
	record, err := process.Start(process.Spec{
		// nsenter becomes the program that it is given.
		Name: m.record(), Program: "nsenter", Args: []string{"--net=/run/netns/" + m.namespace(), c.Layout.self(), "machine", "init", c.Layout.machine(name)},
		Log: c.Layout.log(m.record()), Owner: c.Layout.State,
		CloneFlags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}, c.Layout.processes())
	if err != nil {
		return err
	}
	if fresh {
		if err := c.loadMachineImages(ctx, m, record, options.Images); err != nil {
			return err
		}
	}
	c.say("machine %s is up at %s after %s; its console is %s", name, m.Address, time.Since(begin).Round(100*time.Millisecond), record.Log)
	return nil
}

// provide creates the machine's record, its network and its control group; fresh says that it was not there before.
func (c Cluster) provide(ctx context.Context, name string, options MachineOptions) (m Machine, fresh bool, err error) {
	unlock, err := c.lockMachines()
	if err != nil {
		return m, false, err
	}
	defer unlock()
	m, found, err := c.getMachine(name)
	if err != nil {
		return m, false, err
	}
	if found {
		if _, running := c.machineProcess(m); running {
			return m, false, fmt.Errorf("machine %s is up already", name)
		}
		// An interrupted start may have left a part of it.
		if err := c.disconnect(ctx, m); err != nil {
			return m, false, err
		}
		_, err := os.Stat(c.Layout.machine(name, guest.DiskImages))
		fresh = err != nil
	} else {
		fresh = true
		if m, err = c.newMachine(name, options); err != nil {
			return m, false, err
		}
	}
	if options.Metadata != "" {
		if m.Metadata, err = reachable(options.Metadata); err != nil {
			return m, false, err
		}
	}
	if err := c.saveMachine(m); err != nil {
		return m, false, err
	}
	if err := makeCgroup(m.CgroupRoot); err != nil {
		return m, false, err
	}
	return m, fresh, c.connect(ctx, m)
}

// newMachine gives a machine the address that is asked for, or the next free one.
func (c Cluster) newMachine(name string, options MachineOptions) (Machine, error) {
	list, err := c.machines()
	if err != nil {
		return Machine{}, err
	}
	taken := map[int]string{}
	for _, other := range list {
		taken[other.Number] = other.Name
	}
	for number := firstMachine; number <= lastMachine; number++ {
		address, pods, err := addressesOf(c.Options, number)
		if err != nil {
			return Machine{}, err
		}
		other := taken[number]
		switch {
		case options.Address != "" && options.Address != address, address == c.Options.NodeIP:
		case other == "":
			return Machine{Number: number, Config: guest.Config{
				Name: name, Disk: c.Layout.machine(name), Programs: c.Layout.Bin, State: c.Layout.State,
				Address: address, Gateway: c.Options.NodeIP, PodCIDR: pods, ClusterCIDR: c.Options.PodCIDR, CgroupRoot: "/localcluster-" + name,
			}}, nil
		case options.Address != "":
			return Machine{}, fmt.Errorf("--address %s: machine %s has it", options.Address, other)
		}
	}
	if options.Address != "" {
		return Machine{}, fmt.Errorf("--address %s: want one of the node's network with a last part of %d to %d", options.Address, firstMachine, lastMachine)
	}
	return Machine{}, errors.New("all addresses of machines are taken: take some down")
}

func reachable(metadata string) (string, error) {
	address, err := net.ResolveTCPAddr("tcp4", metadata)
	if err != nil || address.IP == nil || address.Port == 0 {
		return "", fmt.Errorf("--metadata %q: want the host and port of an HTTP server, such as 10.77.0.1:8080", metadata)
	}
	if address.IP.IsLoopback() {
		return "", fmt.Errorf("--metadata %s: a machine cannot reach this host's loopback: have the server listen on the node's address", metadata)
	}
	return address.String(), nil
}

// loadMachineImages loads images into a machine's runtime, then lets its startup continue.
func (c Cluster) loadMachineImages(ctx context.Context, m Machine, record process.Record, images []string) error {
	socket := fmt.Sprintf("/proc/%d/root/run/containerd/containerd.sock", record.PID)
	err := c.wait(ctx, condition{
		what: "the container runtime of machine " + m.Name + " serves", daemons: []string{m.record()},
		check: func(ctx context.Context) error {
			_, err := c.ctrAt(ctx, socket, nil, "version")
			return err
		},
	})
	if err != nil {
		return err
	}
	for _, image := range append([]string{PauseImage}, images...) {
		if err := c.copyImage(ctx, image, socket); err != nil {
			return fmt.Errorf("copy image %s to machine %s: %w", image, m.Name, err)
		}
	}
	return os.WriteFile(c.Layout.machine(m.Name, guest.DiskImages), nil, 0o644)
}
