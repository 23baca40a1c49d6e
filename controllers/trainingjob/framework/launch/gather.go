package launch

import (
	_ "embed"

	corev1 "k8s.io/api/core/v1"
)

// launcher is the program that frameworks with a head start their workers by. It is Python, which every image for such
// a framework has, and lies in the job's ConfigMap, so that it runs in any image.
//
//go:embed launcher.py
var launcher string

const (
	launcherFile = "launcher.py"
	// GatherPort is where the launcher of replica 0 gathers those of the others.
	GatherPort = 29499
)

// Gathered is a framework whose program runs on replica 0 alone, or is started from there: replica 0 gathers the others
// first, and these end with exit code 0 when it tells them that it is done.
type Gathered struct {
	Plain

	// Mode is how the launcher starts the program.
	Mode string
	// Default is the program of a job that names none.
	Default []string
}

// GatherEnv are the variables that the launcher reads.
func (g Gathered) GatherEnv(topology Topology) []corev1.EnvVar {
	return []corev1.EnvVar{
		Number("LAUNCH_REPLICAS", topology.Workers),
		ReplicaIndex("LAUNCH_REPLICA"),
		Text("LAUNCH_ADDRESS", topology.MasterAddress),
		Number("LAUNCH_PORT", GatherPort),
		Text("LAUNCH_KEY", topology.ID),
		Number("LAUNCH_PROCESSES", topology.Processes()),
	}
}

// Program implements Framework: the launcher, and below it what the job names.
func (g Gathered) Program(named Program) Program {
	program := named.Command
	if len(program) == 0 {
		program = g.Default
	}
	args := append([]string{g.Mode, "--"}, program...)
	return Program{Command: []string{"python3", ConfigFolder + "/" + launcherFile}, Args: append(args, named.Args...)}
}

// GatherPorts are the ports of the launcher.
func (g Gathered) GatherPorts() []Port {
	return []Port{{Name: "launch", Number: GatherPort, Master: true}}
}

// Files implements Framework: the launcher.
func (g Gathered) Files(Topology) map[string]string { return map[string]string{launcherFile: launcher} }
