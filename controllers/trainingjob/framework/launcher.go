package framework

import (
	_ "embed"

	corev1 "k8s.io/api/core/v1"
)

// launcher is the program that frameworks with a head start their workers by: their program runs on replica 0 alone, or is started from
// there. Replica 0 gathers the others first, and these end with exit code 0 when it tells them that it is done. It is Python, which every
// image for such a framework has, and lies in the job's ConfigMap, so that it runs in any image.
//
//go:embed launcher.py
var launcher string

const launcherFile = "launcher.py"

// launchCommand starts the launcher.
var launchCommand = []string{"python3", ConfigFolder + "/" + launcherFile}

// launcherPort is where the launcher of replica 0 gathers those of the others.
var launcherPort = Port{Name: "launch", Number: 29499, Master: true}

// launcherEnv are the variables that the launcher reads.
func launcherEnv(topology Topology) []corev1.EnvVar {
	return []corev1.EnvVar{
		Number("LAUNCH_REPLICAS", topology.Workers),
		ReplicaIndex("LAUNCH_REPLICA"),
		Text("LAUNCH_ADDRESS", topology.MasterAddress),
		Number("LAUNCH_PORT", launcherPort.Number),
		Text("LAUNCH_KEY", topology.ID),
		Number("LAUNCH_PROCESSES", topology.processes()),
	}
}
