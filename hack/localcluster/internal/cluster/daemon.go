package cluster

import (
	"fmt"
	"time"
)

type daemon struct {
	// name is the name of the record and of the log.
	name string
	// program is the path of the executable; empty for the file called name in the binary folder.
	program string
	args    []string
	env     []string
	// phase orders starting; daemons of one phase start together, and stop together in reverse order.
	phase phase
	// grace is how long it may take to end before it is killed.
	grace time.Duration
}

// phase is a step of the start; each needs the one before.
type phase int

const (
	// storing is etcd: it outlives the API server, which without it does not end on SIGTERM.
	storing phase = iota
	// serving is what others talk to: the API server, the container runtime, the registry.
	serving
	// controlling needs a ready API server.
	controlling
	// working runs pods and serves them.
	working
	phases = working + 1
)

func daemons(layout Layout, options Options) []daemon {
	list := controlPlane(layout, options)
	if options.Simulate {
		list = append(list, simulator(layout, options))
	} else {
		list = append(list, node(layout, options)...)
	}
	list = append(list, provisioner(layout))
	for i := range list {
		list[i].args = append(list[i].args, options.ExtraArgs[list[i].name]...)
		if list[i].program == "" {
			list[i].program = layout.program(list[i].name)
		}
		if list[i].grace == 0 {
			list[i].grace = 10 * time.Second
		}
	}
	return list
}

// provisioner makes the volumes of the default StorageClass. It is this command itself.
func provisioner(layout Layout) daemon {
	return daemon{
		name: "provisioner", program: layout.self(), phase: working,
		args: []string{"provisioner", "--kubeconfig", layout.Kubeconfig(), "--volumes", layout.data("volumes"), "--name", Provisioner},
	}
}

// flags turns pairs of name and value into arguments, sorted as given.
func flags(pairs ...string) []string {
	args := make([]string, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		args = append(args, fmt.Sprintf("--%s=%s", pairs[i], pairs[i+1]))
	}
	return args
}
