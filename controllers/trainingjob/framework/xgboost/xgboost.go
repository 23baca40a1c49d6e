// Package xgboost is distributed XGBoost, whose tracker runs on replica 0.
package xgboost

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
)

// New returns the framework.
func New() launch.Framework { return xgBoost{} }

// xgBoost sets the variables that XGBoost's collective reads, or is given as its arguments in lower case since version
// 1.7: where the tracker is, how many workers it waits for, and which of them this one is. The program on replica 0 starts
// the tracker at the job's master port before it joins. RANK and WORLD_SIZE say the same to programs that start it.
//
// Sources: https://xgboost.readthedocs.io/en/stable/python/python_api.html#module-xgboost.collective,
// https://xgboost.readthedocs.io/en/stable/python/python_api.html#module-xgboost.tracker and
// https://xgboost.readthedocs.io/en/stable/tutorials/kubernetes.html.
type xgBoost struct{ launch.Plain }

// Env implements launch.Framework.
func (xgBoost) Env(topology launch.Topology) []corev1.EnvVar {
	return []corev1.EnvVar{
		launch.Text("MASTER_ADDR", topology.MasterAddress),
		launch.Number("MASTER_PORT", topology.MasterPort),
		launch.Number("WORLD_SIZE", topology.Workers),
		launch.ReplicaIndex("RANK"),
		launch.Text("DMLC_ROLE", "worker"),
		launch.Text("DMLC_TRACKER_URI", topology.MasterAddress),
		launch.Number("DMLC_TRACKER_PORT", topology.MasterPort),
		launch.Number("DMLC_NUM_WORKER", topology.Workers),
		launch.Number("DMLC_NUM_SERVER", 0),
		launch.ReplicaIndex("DMLC_TASK_ID"),
	}
}
