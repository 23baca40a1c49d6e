package framework

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// The ports of Ray's own defaults: of the GCS server, of the dashboard and jobs, and of Ray Client.
const (
	gcsPort       = 6379
	dashboardPort = 8265
	clientPort    = 10001
)

// ray is a Ray cluster for the time of a job. The launcher starts `ray start --head` on replica 0 and `ray start --address` on the others,
// then runs the job's command, the driver, on replica 0, where it finds the cluster by RAY_ADDRESS. When the driver ends, all end: replica 0
// with the driver's exit code, the others with 0.
//
// Sources: https://docs.ray.io/en/latest/cluster/cli.html, https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html
// and https://docs.ray.io/en/latest/ray-core/api/doc/ray.init.html (RAY_ADDRESS).
var ray = Framework{
	Name: "Ray", ImageExample: "rayproject/ray", launchMode: "ray",
	Ports: []Port{
		launcherPort, {Name: "gcs", Number: gcsPort, Master: true}, {Name: "dashboard", Number: dashboardPort, Master: true},
		{Name: "client", Number: clientPort, Master: true},
	},
	Env: func(topology Topology) []corev1.EnvVar {
		return append(launcherEnv(topology),
			Text("RAY_ADDRESS", topology.MasterAddress+":"+strconv.Itoa(gcsPort)),
			Number("RAY_HEAD_PORT", gcsPort),
			Number("RAY_DASHBOARD_PORT", dashboardPort),
			Number("RAY_CLIENT_PORT", clientPort),
			Number("RAY_NUM_GPUS", topology.GPUsPerWorker),
			Number("RAY_USAGE_STATS_ENABLED", 0),
		)
	},
}
