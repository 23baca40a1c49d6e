package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/component"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// Free disk space that a start asks for: programs with their build cache, and the cluster's data.
const (
	spaceToBuild = 8 * host.GiB
	spaceToRun   = 2 * host.GiB
)

// Cluster is a cluster that may or may not be running.
type Cluster struct {
	Layout  Layout
	Options Options
	// Timeout is how long to wait for each condition of readiness; zero means DefaultTimeout.
	Timeout time.Duration
	// Out receives what happens, one line at a time.
	Out io.Writer
}

// Up starts whatever of the cluster is not running, and returns when it is ready to use. It builds and
// installs what it needs first.
func (c Cluster) Up(ctx context.Context) error {
	begin := time.Now()
	if err := c.check(); err != nil {
		return err
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.agreesWithRunning(); err != nil {
		return err
	}
	list, err := daemons(c.Layout, c.Options)
	if err != nil {
		return err
	}
	missing, err := c.notRunning(list)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		if err := c.waitReady(ctx); err != nil {
			return err
		}
		c.say("already running; nothing to do")
		c.sayWhere()
		return nil
	}
	if err := c.prepare(ctx, len(missing) == len(list), missing); err != nil {
		return err
	}
	starting := time.Now()
	if err := c.start(ctx, missing); err != nil {
		return err
	}
	c.say("ready: %s to start, %s in all", time.Since(starting).Round(100*time.Millisecond), time.Since(begin).Round(100*time.Millisecond))
	c.sayWhere()
	return nil
}

// check returns an error when a start cannot succeed.
func (c Cluster) check() error {
	if err := errors.Join(c.Options.Validate(), c.Layout.validate()); err != nil {
		return err
	}
	if !c.Options.Simulate && os.Geteuid() != 0 {
		return errors.New("a node that runs pods needs root: use sudo, or SIMULATE=1 for a cluster with simulated pods, " +
			"or set KUBECONFIG to another cluster (kind, for example)")
	}
	return nil
}

// agreesWithRunning returns an error when the state folder holds a cluster of the other kind.
func (c Cluster) agreesWithRunning() error {
	saved, ok, err := LoadOptions(c.Layout)
	if err != nil || !ok || saved.Simulate == c.Options.Simulate {
		return err
	}
	kind := map[bool]string{true: "simulated", false: "live"}
	return fmt.Errorf("%s holds a %s cluster: run \"localcluster down\" first, or choose another folder with --state for a %s one beside it",
		c.Layout.State, kind[saved.Simulate], kind[c.Options.Simulate])
}

// lock keeps two commands from starting and stopping the same cluster at once.
func (c Cluster) lock() (unlock func(), err error) {
	return host.Lock(c.Layout.Path("lock"), func() error {
		return fmt.Errorf("another localcluster command works on %s; wait for it to end", c.Layout.State)
	})
}

func (c Cluster) notRunning(list []daemon) ([]daemon, error) {
	var missing []daemon
	for _, d := range list {
		_, runs, err := c.Layout.processes().Running(d.Name)
		if err != nil {
			return nil, err
		}
		if !runs {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// prepare makes everything that the processes need; fresh says that none of them runs.
func (c Cluster) prepare(ctx context.Context, fresh bool, missing []daemon) error {
	if c.Options.Simulate {
		c.say("simulated nodes: pods are scheduled and become Running, but no containers run")
	}
	if err := c.build(ctx); err != nil {
		return err
	}
	if err := host.NeedSpace(c.Layout.State, spaceToRun, "the cluster"); err != nil {
		return err
	}
	if fresh {
		// Clean up after an interrupted start or stop. The data is kept.
		if err := c.stop(ctx); err != nil {
			return err
		}
	}
	if err := host.PortsFree(c.ports(missing)); err != nil {
		return err
	}
	if err := c.Options.save(c.Layout); err != nil {
		return err
	}
	if !c.Options.Simulate {
		if err := host.Install(ctx, host.NodePackages(), c.Out); err != nil {
			return err
		}
		if fresh {
			if err := removeStrayDevices(ctx, c.Options.PodCIDR); err != nil {
				return err
			}
		}
		if err := setUpNetwork(ctx, c.Layout, c.Options); err != nil {
			return err
		}
	}
	if fresh {
		if err := writeCredentials(c.Layout, c.Options); err != nil {
			return err
		}
	}
	if err := copySelf(c.Layout.self()); err != nil {
		return err
	}
	version, err := c.Layout.Version("kubernetes")
	if err != nil {
		return err
	}
	return writeConfig(c.Layout, c.Options, version)
}

// copySelf puts the running executable into the file target, so that background processes do not
// depend on where it was started from ("go run" deletes its executable).
func copySelf(target string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(self)
	if err != nil {
		return fmt.Errorf("read own executable: %w", err)
	}
	return host.WriteFile(target, content, 0o755)
}

func (c Cluster) build(ctx context.Context) error {
	use := component.Live
	if c.Options.Simulate {
		use = component.Simulated
	}
	if _, err := os.Stat(c.Layout.program("kubernetes")); err != nil {
		if err := host.NeedSpace(c.Layout.Bin, spaceToBuild, "building the programs"); err != nil {
			return err
		}
	}
	return c.Builder().Ensure(ctx, component.For(use))
}

// Builder builds programs into the cluster's folder of programs.
func (c Cluster) Builder() component.Builder {
	return component.Builder{Source: c.Layout.Source, Bin: c.Layout.Bin, Out: c.Out}
}

func (c Cluster) start(ctx context.Context, missing []daemon) error {
	for _, p := range phases {
		for _, d := range missing {
			if d.Phase != p {
				continue
			}
			if _, err := process.Start(d.Spec, c.Layout.processes()); err != nil {
				return err
			}
		}
		if p == serving {
			c.say("waiting for the API server")
			if err := c.waitServing(ctx); err != nil {
				return err
			}
			if err := c.applyAddons(ctx); err != nil {
				return err
			}
		}
	}
	c.say("waiting for the node to be ready")
	return c.waitReady(ctx)
}

// ports are those that the daemons in list will serve.
func (c Cluster) ports(list []daemon) []host.Port {
	var needed []host.Port
	for _, d := range list {
		for _, port := range append(AllPorts(), Port{Name: "dns", Daemon: "coredns", What: "the name server", OnNode: true}) {
			if port.Daemon != d.Name {
				continue
			}
			address, number := "127.0.0.1", c.Options.Ports[port.Name]
			if port.Name == "dns" {
				number = 53 // where every client looks for a name server
			}
			if port.OnNode {
				address = c.Options.Address()
			}
			bound := netip.AddrPortFrom(netip.MustParseAddr(address), uint16(number))
			needed = append(needed, host.Port{Purpose: port.What, Flag: port.Flag, Address: bound})
		}
	}
	return needed
}

func (c Cluster) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// sayWhere prints how to use the running cluster.
func (c Cluster) sayWhere() {
	c.say("  API server  %s", c.Options.APIServer())
	c.say("  kubeconfig  %s", c.Layout.Kubeconfig())
	if !c.Options.Simulate {
		c.say("  registry    %s", c.Options.Registry())
	}
	c.say("  kubectl     %s --kubeconfig %s", c.Layout.program("kubectl"), c.Layout.Kubeconfig())
}
