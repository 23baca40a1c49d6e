package cluster

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// Down stops everything of the cluster and removes what it left on the machine. Programs and logs are
// kept; etcd's data, images and volumes only with keepData. It is idempotent.
func (c Cluster) Down(ctx context.Context, keepData bool) error {
	begin := time.Now()
	saved, ok, err := LoadOptions(c.Layout)
	if err != nil {
		return err
	}
	if ok && !saved.Simulate && os.Geteuid() != 0 {
		return errors.New("this cluster was started by root, and only root can stop it: use sudo")
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if ok {
		c.Options = saved
	}
	if err := c.stop(ctx); err != nil {
		return err
	}
	if !keepData {
		if err := os.RemoveAll(c.Layout.data()); err != nil {
			return err
		}
		if err := os.Remove(c.Layout.Kubeconfig()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	c.say("stopped in %s", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

// stop stops all processes in the reverse order of starting, then clears the machine of mounts,
// network devices, firewall rules and control groups, and the state folder of run/.
func (c Cluster) stop(ctx context.Context) error {
	records, err := c.Layout.processes().List()
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := c.stopMachines(ctx); err != nil {
			return err
		}
	}
	list, err := daemons(c.Layout, c.Options)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(phases) {
		if p == serving && !c.Options.Simulate {
			// The kubelet, which would start them again, is gone; containerd, which owns them, is not yet.
			endContainers(c.Layout)
		}
		c.stopPhase(p, list, records)
	}
	for _, record := range records {
		// A record that no daemon has any more was written by an older version of this command.
		process.Stop(record.Identity, 5*time.Second)
	}
	endLeftovers(c.Layout)

	if os.Geteuid() == 0 && !c.Options.Simulate {
		removeShimSockets()
		err := errors.Join(host.UnmountBelow(c.Layout.run()), host.UnmountBelow(c.Layout.data()))
		removeCgroup("kubepods")
		removeKubeletTraces(c.Layout)
		if err := errors.Join(err, tearDownNetwork(ctx, c.Layout)); err != nil {
			// run/ stays, so that the next attempt knows what is left to do.
			return err
		}
	}
	return os.RemoveAll(c.Layout.run())
}

func (c Cluster) stopPhase(phase string, list []daemon, records []process.Record) {
	var wait time.Duration
	var stopping []process.Record
	for _, d := range list {
		for _, record := range records {
			if d.Phase == phase && record.Name == d.Name && record.Alive() {
				stopping = append(stopping, record)
				wait = max(wait, d.grace())
			}
		}
	}
	for _, name := range process.StopAll(stopping, wait) {
		c.say("%s did not end in %s and was killed", name, wait)
	}
}
