package cli

import (
	"context"
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
	options                      cluster.Options
	ports                        cluster.Ports
	offset                       int
	extraArgs, resources, labels []string
	timeout                      time.Duration
}

func upCommand(f *folders) *cobra.Command {
	var u upFlags
	cmd := &cobra.Command{
		Use: "up", Short: "Build what is missing, start the cluster and wait until it is ready", Args: cobra.NoArgs,
		RunE: f.onLayout(func(ctx context.Context, layout cluster.Layout) error {
			options, err := u.resolve()
			if err != nil {
				return err
			}
			c := cluster.Cluster{Layout: layout, Options: options, Timeout: u.timeout, Out: os.Stdout}
			return c.Up(ctx)
		}),
	}
	flags := cmd.Flags()
	o := &u.options
	flags.BoolVar(&o.Simulate, "simulate", truthy(os.Getenv("SIMULATE")), "simulated nodes: no root, and no containers run [SIMULATE=1]")
	flags.IntVar(&o.Simulation.Nodes, "nodes", 1, "number of simulated nodes")
	flags.IntVar(&o.Simulation.Pods, "pods-per-node", 110, "pods that fit on a simulated node")
	flags.StringVar(&o.Simulation.CPU, "node-cpu", "32", "CPUs of a simulated node")
	flags.StringVar(&o.Simulation.Memory, "node-memory", "256Gi", "memory of a simulated node")
	flags.StringArrayVar(&u.resources, "node-resource", nil, "further resource of a simulated node, such as nvidia.com/gpu=8; may be repeated")
	flags.StringArrayVar(&u.labels, "node-label", nil, "label of a simulated node, name=value; may be repeated")
	flags.StringArrayVar(&o.Simulation.Stages, "stages", nil, "file with further kwok Stages; may be repeated")
	flags.BoolVar(&o.AuditLog, "audit-log", false, "write a JSON audit log of all requests (level Metadata) to logs/audit.log")
	flags.StringArrayVar(&u.extraArgs, "extra-arg", nil, "further argument of a program, such as kube-apiserver=--v=2; may be repeated")
	flags.StringVar(&o.NodeIP, "node-ip", "10.77.0.1", "address of the node, given to a network device of its own")
	flags.StringVar(&o.PodCIDR, "pod-cidr", "10.78.0.0/16", "network of the pods")
	flags.StringVar(&o.ServiceCIDR, "service-cidr", "10.96.0.0/16", "network of the services' cluster IPs")
	flags.StringArrayVar(&o.Mirrors, "mirror", []string{"registry.example.com"},
		"registry whose images the node takes from the cluster's own registry; may be repeated")
	flags.DurationVar(&u.timeout, "timeout", cluster.DefaultTimeout, "how long to wait for each condition of readiness")
	flags.IntVar(&u.offset, "port-offset", 0, "number added to every default port")
	u.portFlags(flags)
	return cmd
}

func (u *upFlags) portFlags(flags *pflag.FlagSet) {
	live, simulated := cluster.DefaultPorts(false), cluster.DefaultPorts(true)
	for i, port := range u.ports.Chosen() {
		flags.IntVar(port.Port, port.Flag, 0, fmt.Sprintf("TCP port of %s (default %d, simulated %d)",
			port.What, *live.Chosen()[i].Port, *simulated.Chosen()[i].Port))
	}
}

func (u upFlags) resolve() (cluster.Options, error) {
	options := u.options
	options.Ports = cluster.DefaultPorts(options.Simulate).Offset(u.offset)
	for i, port := range u.ports.Chosen() {
		if *port.Port != 0 {
			*options.Ports.Chosen()[i].Port = *port.Port
		}
	}
	var err error
	if options.Simulation.Resources, err = split("node-resource", u.resources); err != nil {
		return options, err
	}
	if options.Simulation.Labels, err = split("node-label", u.labels); err != nil {
		return options, err
	}
	options.ExtraArgs = map[string][]string{}
	for _, extra := range u.extraArgs {
		program, arg, ok := cut(extra)
		if !ok {
			return options, fmt.Errorf("--extra-arg %q: want program=argument", extra)
		}
		options.ExtraArgs[program] = append(options.ExtraArgs[program], arg)
	}
	for i, stage := range options.Simulation.Stages {
		if options.Simulation.Stages[i], err = filepath.Abs(stage); err != nil {
			return options, err
		}
	}
	return options, nil
}

// cut splits name=value at the first equals sign; the name may not be empty.
func cut(assignment string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(assignment, "=")
	return name, value, ok && name != ""
}

// truthy reads an environment variable that switches something on.
func truthy(value string) bool {
	return value != "" && value != "0" && !strings.EqualFold(value, "false")
}
