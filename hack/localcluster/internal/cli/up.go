package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
)

type upFlags struct {
	options cluster.Options
	ports   map[string]*int
	offset  int
	timeout time.Duration
}

func upCommand(f *folders) *cobra.Command {
	var u upFlags
	cmd := &cobra.Command{
		Use: "up", Short: "Build what is missing, start the cluster and wait until it is ready", Args: cobra.NoArgs,
		RunE: f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
			return cluster.Cluster{Layout: layout, Options: u.resolve(), Timeout: u.timeout, Out: os.Stdout}.Up(ctx)
		}),
	}
	u.register(cmd.Flags())
	return cmd
}

func (u *upFlags) register(flags *pflag.FlagSet) {
	o := &u.options
	o.Simulation.Resources, o.Simulation.Labels, o.ExtraArgs = map[string]string{}, map[string]string{}, map[string][]string{}
	flags.BoolVar(&o.Simulate, "simulate", truthy(os.Getenv("SIMULATE")), "simulated nodes: no root, and no containers run [SIMULATE=1]")
	flags.IntVar(&o.Simulation.Nodes, "nodes", 1, "number of simulated nodes")
	flags.IntVar(&o.Simulation.Pods, "pods-per-node", 110, "pods that fit on a simulated node")
	flags.StringVar(&o.Simulation.CPU, "node-cpu", "32", "CPUs of a simulated node")
	flags.StringVar(&o.Simulation.Memory, "node-memory", "256Gi", "memory of a simulated node")
	flags.Func("node-resource", "further resource of a simulated node, such as `nvidia.com/gpu=8`; may be repeated", assign(o.Simulation.Resources))
	flags.Func("node-label", "label of a simulated node, `name=value`; may be repeated", assign(o.Simulation.Labels))
	flags.Func("stages", "`file` with further kwok Stages; may be repeated", func(file string) error {
		path, err := filepath.Abs(file)
		o.Simulation.Stages = append(o.Simulation.Stages, path)
		return err
	})
	flags.BoolVar(&o.AuditLog, "audit-log", false, "write a JSON audit log of all requests (level Metadata) to logs/audit.log")
	flags.Func("extra-arg", "further argument of a program, such as `kube-apiserver=--v=2`; may be repeated", func(extra string) error {
		program, arg, ok := strings.Cut(extra, "=")
		if !ok || program == "" {
			return errors.New("want program=argument")
		}
		o.ExtraArgs[program] = append(o.ExtraArgs[program], arg)
		return nil
	})
	flags.StringVar(&o.NodeIP, "node-ip", "10.77.0.1", "address of the node, given to a network device of its own")
	flags.StringVar(&o.PodCIDR, "pod-cidr", "10.78.0.0/16", "network of the pods")
	flags.StringVar(&o.ServiceCIDR, "service-cidr", "10.96.0.0/16", "network of the services' cluster IPs")
	flags.StringArrayVar(&o.Mirrors, "mirror", []string{"registry.example.com"},
		"registry whose images the node takes from the cluster's own registry; may be repeated")
	flags.DurationVar(&u.timeout, "timeout", cluster.DefaultTimeout, "how long to wait for each condition of readiness")
	flags.IntVar(&u.offset, "port-offset", 0, "number added to every default port")
	u.ports = map[string]*int{}
	simulated := cluster.DefaultPorts(true, 0)
	for _, port := range cluster.AllPorts() {
		if port.Flag != "" {
			usage := fmt.Sprintf("TCP port of %s (default %d, simulated %d)", port.What, port.Default, simulated[port.Name])
			u.ports[port.Name] = flags.Int(port.Flag, 0, usage)
		}
	}
}

func (u upFlags) resolve() cluster.Options {
	options := u.options
	options.Ports = cluster.DefaultPorts(options.Simulate, u.offset)
	for name, number := range u.ports {
		if *number != 0 {
			options.Ports[name] = *number
		}
	}
	return options
}

// truthy reads an environment variable that switches something on.
func truthy(value string) bool {
	return value != "" && value != "0" && !strings.EqualFold(value, "false")
}
