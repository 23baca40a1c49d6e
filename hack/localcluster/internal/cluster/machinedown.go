package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// MachinePreempt powers a machine off without a grace period. Its disk stays, so that it can be started again.
func (c Cluster) MachinePreempt(ctx context.Context, name string) error {
	m, ok, err := c.getMachine(name)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("there is no machine %s", name)
	}
	return c.powerOff(ctx, m)
}

// MachineDown powers a machine off and removes it. A missing machine is not an error.
func (c Cluster) MachineDown(ctx context.Context, name string) error {
	m, ok, err := c.getMachine(name)
	if err != nil || !ok {
		return err
	}
	if err := c.powerOff(ctx, m); err != nil {
		return err
	}
	return os.RemoveAll(c.Layout.machine(name))
}

// powerOff kills all processes of a machine and removes what it has outside of its disk.
func (c Cluster) powerOff(ctx context.Context, m Machine) error {
	unlock, err := c.lockMachines()
	if err != nil {
		return err
	}
	defer unlock()
	if record, running := c.machineProcess(m); running {
		// With the first process of their namespace all others end, and with the last of them the mounts.
		process.Kill(record.Identity)
	}
	if err := waitEmpty(ctx, m.CgroupRoot); err != nil {
		return err
	}
	if err := c.disconnect(ctx, m); err != nil {
		return err
	}
	return c.Layout.processes().Remove(m.record())
}

func waitEmpty(ctx context.Context, group string) error {
	const limit = 10 * time.Second
	left := 0
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true, func(context.Context) (bool, error) {
		left = len(cgroupProcesses(group))
		return left == 0, nil
	})
	if err != nil {
		return fmt.Errorf("%d processes in control group %s did not end within %s: %w", left, group, limit, err)
	}
	return nil
}

func (c Cluster) stopMachines(ctx context.Context) error {
	list, err := c.machines()
	if err != nil {
		return err
	}
	var problems []error
	for _, m := range list {
		problems = append(problems, c.MachineDown(ctx, m.Name))
	}
	return errors.Join(problems...)
}

// MachineList prints a line for each machine.
func (c Cluster) MachineList() error {
	list, err := c.machines()
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "MACHINE\tADDRESS\tPODS\tPID\tSINCE\tMETADATA")
	for _, m := range list {
		pid, since := "-", "off"
		if record, running := c.machineProcess(m); running {
			pid, since = fmt.Sprint(record.PID), time.Since(record.Started).Round(time.Second).String()
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, m.Address, m.PodCIDR, pid, since, m.Metadata)
	}
	return out.Flush()
}
