package cluster

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"
)

// Status prints which processes run and whether the cluster is ready. It returns false when it is not.
func (c Cluster) Status(ctx context.Context) (ready bool, err error) {
	saved, ok, err := LoadOptions(c.Layout)
	if err != nil {
		return false, err
	}
	if !ok {
		c.say("not running (state folder %s)", c.Layout.State)
		return false, nil
	}
	c.Options = saved
	list, err := daemons(c.Layout, saved)
	if err != nil {
		return false, err
	}
	running, err := c.printProcesses(list)
	if err != nil {
		return false, err
	}
	if running == 0 {
		c.say("not running; data of an earlier run is in %s", c.Layout.data())
		return false, nil
	}
	probe := c
	probe.Timeout = time.Millisecond // one look, no waiting
	if err := probe.waitReady(ctx); err != nil {
		c.say("not ready: %v", err)
		return false, nil
	}
	if running < len(list) {
		c.say("ready, but some processes have ended; \"localcluster up\" starts them again")
		return false, nil
	}
	c.say("ready")
	c.sayWhere()
	return true, nil
}

// printProcesses prints a line for each daemon and returns how many run.
func (c Cluster) printProcesses(list []daemon) (running int, err error) {
	out := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "PROCESS\tPID\tSINCE\tLOG")
	for _, d := range list {
		record, runs, err := c.Layout.processes().Running(d.Name)
		if err != nil {
			return 0, err
		}
		if !runs {
			fmt.Fprintf(out, "%s\t-\tnot running\t%s\n", d.Name, c.Layout.log(d.Name))
			continue
		}
		running++
		since := time.Since(record.Started).Round(time.Second)
		fmt.Fprintf(out, "%s\t%d\t%s\t%s\n", d.Name, record.PID, since, record.Log)
	}
	return running, out.Flush()
}
