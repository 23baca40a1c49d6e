package cluster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// pollEvery is the interval at which a condition of readiness is checked.
const pollEvery = 100 * time.Millisecond

// condition is something that has to hold for the cluster to be ready.
type condition struct {
	// what says it in words for the user ("the API server is ready").
	what string
	// daemons are the processes that make it true, the likeliest to fail first.
	daemons []string
	// check returns nil when it is true.
	check func(ctx context.Context) error
	// explain says why it may be false; nil for the end of the first process's log.
	explain func(ctx context.Context) string
}

// WaitFor polls until check returns nil, for something that runs in pods. When the time is over, the error says
// what (in words such as "OLM is ready") is not true, and what explain returns.
func (c Cluster) WaitFor(ctx context.Context, what string, check func(context.Context) error, explain func(context.Context) string) error {
	return c.wait(ctx, condition{
		what: what, daemons: []string{"kubelet", "containerd", "kube-controller-manager", "kube-scheduler", "kube-apiserver"},
		check: check, explain: explain,
	})
}

// wait polls until the conditions hold, one after the other. It fails when one of a condition's processes has ended or the
// time is over, with the end of that process's log in the error.
func (c Cluster) wait(ctx context.Context, conditions ...condition) error {
	for _, cond := range conditions {
		if err := c.waitOne(ctx, cond); err != nil {
			return err
		}
	}
	return nil
}

func (c Cluster) waitOne(ctx context.Context, cond condition) error {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	begin := time.Now()
	for {
		tryCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := cond.check(tryCtx)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if name := c.ended(cond.daemons); name != "" {
			return fmt.Errorf("%s ended while waiting until %s\n%s", name, cond.what, c.logTail(name))
		}
		if time.Since(begin) > timeout {
			if cond.explain != nil {
				return fmt.Errorf("after %s still not true: %s: %w\n%s", timeout, cond.what, err, cond.explain(ctx))
			}
			name := cond.daemons[0]
			return fmt.Errorf("after %s still not true: %s (%s): %w\n%s", timeout, cond.what, name, err, c.logTail(name))
		}
		time.Sleep(pollEvery)
	}
}

func (c Cluster) ended(names []string) string {
	for _, name := range names {
		record, ok, err := c.Layout.processes().Get(name)
		if err == nil && ok && !record.Alive() {
			return name
		}
	}
	return ""
}

// logTail returns the last lines of a daemon's log, under a line that says where it is.
func (c Cluster) logTail(name string) string {
	path := c.Layout.log(name)
	content, err := os.ReadFile(path)
	if err != nil {
		return "no log: " + err.Error()
	}
	return fmt.Sprintf("the end of %s:\n  %s", path, strings.ReplaceAll(host.Tail(string(content), 15), "\n", "\n  "))
}
