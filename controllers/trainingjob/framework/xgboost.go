package framework

import corev1 "k8s.io/api/core/v1"

// xgBoost is distributed XGBoost, whose tracker runs on replica 0. Its environment is what XGBoost's collective reads, or is given as its
// arguments in lower case since version 1.7: where the tracker is, how many workers it waits for, and which of them this one is. The program
// on replica 0 starts the tracker at the job's master port before it joins. RANK and WORLD_SIZE say the same to programs that start it.
//
// Sources: https://xgboost.readthedocs.io/en/stable/python/python_api.html#module-xgboost.collective,
// https://xgboost.readthedocs.io/en/stable/python/python_api.html#module-xgboost.tracker and
// https://xgboost.readthedocs.io/en/stable/tutorials/kubernetes.html.
var xgBoost = Framework{
	Name: "XGBoost",
	Env: func(topology Topology) []corev1.EnvVar {
		return append(rendezvousEnv(topology),
			Text("DMLC_ROLE", "worker"),
			Text("DMLC_TRACKER_URI", topology.MasterAddress),
			Number("DMLC_TRACKER_PORT", topology.MasterPort),
			Number("DMLC_NUM_WORKER", topology.Workers),
			Number("DMLC_NUM_SERVER", 0),
			ReplicaIndex("DMLC_TASK_ID"),
		)
	},
}
