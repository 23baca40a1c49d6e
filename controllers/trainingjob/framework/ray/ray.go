// Package ray is a Ray cluster for the time of a job: the head on replica 0, the others as its workers.
package ray

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
)

// New returns the framework.
func New() launch.Framework { return ray{launch.Gathered{Mode: "ray"}} }

// The ports of Ray's own defaults: of the GCS server, of the dashboard and jobs, and of Ray Client.
const (
	gcsPort       = 6379
	dashboardPort = 8265
	clientPort    = 10001
)

// ray has the launcher start `ray start --head` on replica 0 and `ray start --address` on the others, then run the job's
// command, the driver, on replica 0, where it finds the cluster by RAY_ADDRESS. When the driver ends, all end: replica 0
// with the driver's exit code, the others with 0.
//
// Sources: https://docs.ray.io/en/latest/cluster/cli.html, https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html
// and https://docs.ray.io/en/latest/ray-core/api/doc/ray.init.html (RAY_ADDRESS).
type ray struct{ launch.Gathered }

// Env implements launch.Framework.
func (r ray) Env(topology launch.Topology) []corev1.EnvVar {
	return append(r.GatherEnv(topology),
		launch.Text("RAY_ADDRESS", topology.MasterAddress+":"+strconv.Itoa(gcsPort)),
		launch.Number("RAY_HEAD_PORT", gcsPort),
		launch.Number("RAY_DASHBOARD_PORT", dashboardPort),
		launch.Number("RAY_CLIENT_PORT", clientPort),
		launch.Number("RAY_NUM_GPUS", topology.GPUsPerWorker),
		launch.Number("RAY_USAGE_STATS_ENABLED", 0),
	)
}

// Ports implements launch.Framework.
func (r ray) Ports() []launch.Port {
	return append(r.GatherPorts(),
		launch.Port{Name: "gcs", Number: gcsPort, Master: true},
		launch.Port{Name: "dashboard", Number: dashboardPort, Master: true},
		launch.Port{Name: "client", Number: clientPort, Master: true},
	)
}

// HasDefaultImage implements launch.Framework.
func (ray) HasDefaultImage() bool { return false }

// Check implements launch.Framework.
func (r ray) Check(request launch.Request) *launch.Problem {
	if problem := launch.NeedImage(request, "Ray", "rayproject/ray"); problem != nil {
		return problem
	}
	if len(request.Program.Command) == 0 {
		return &launch.Problem{Field: "spec.command", Message: "is missing: ray needs the program that runs on the head, " +
			"for example [python, train.py]"}
	}
	return launch.FreePorts(request, "ray", r.Ports())
}
