// Package mpi is Open MPI: mpirun on replica 0 starts the ranks on all replicas.
package mpi

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
)

// New returns the framework.
func New() launch.Framework {
	return mpi{launch.Gathered{Mode: "mpi", Default: []string{"python3", "-m", "training_worker"}}}
}

// The launcher writes the host file, and not the ConfigMap: this may be a moment behind the pods when the number of
// workers has changed.
const (
	// killSeconds is how long the other ranks have to end when one has ended with another code than 0. mpirun takes four
	// times as long, because it waits for it at several places.
	killSeconds = 2
)

// mpi runs the job's command once per GPU, and once per worker without GPUs. mpirun reaches the other replicas through
// the launcher, which stands in for ssh: docs/decisions/0012-mpi-without-ssh.md tells why.
//
// The OMPI_MCA_ variables are read by Open MPI 4, the PRTE_MCA_ ones by Open MPI 5: which program starts daemons, always
// from replica 0, and that these stay in the foreground. Sources: https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html,
// https://docs.open-mpi.org/en/v5.0.x/mca.html and https://www.open-mpi.org/faq/?category=rsh.
type mpi struct{ launch.Gathered }

// Env implements launch.Framework.
func (m mpi) Env(topology launch.Topology) []corev1.EnvVar {
	agent := m.Program(launch.Program{}).Command
	return append(m.GatherEnv(topology),
		launch.Text("LAUNCH_HOSTS", strings.Join(topology.Hosts, ",")),
		launch.Text("MASTER_ADDR", topology.MasterAddress),
		launch.Number("MASTER_PORT", topology.MasterPort),
		launch.Text("OMPI_MCA_plm_rsh_agent", strings.Join(agent, " ")+" agent"),
		launch.Number("OMPI_MCA_plm_rsh_no_tree_spawn", 1),
		launch.Number("OMPI_MCA_orte_leave_session_attached", 1),
		launch.Number("OMPI_MCA_odls_base_sigkill_timeout", killSeconds),
		launch.Text("PRTE_MCA_plm_ssh_agent", strings.Join(agent, " ")+" agent"),
		launch.Number("PRTE_MCA_plm_ssh_no_tree_spawn", 1),
		launch.Number("PRTE_MCA_prte_leave_session_attached", 1),
		launch.Number("PRTE_MCA_odls_base_sigkill_timeout", killSeconds),
		// Ranks that wait for others leave the processor to them, because workers may share one.
		launch.Number("OMPI_MCA_mpi_yield_when_idle", 1),
		// In a container the user of the job has no root rights outside of it.
		launch.Number("OMPI_ALLOW_RUN_AS_ROOT", 1),
		launch.Number("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", 1),
		// A rank of the training worker that is told to end, because another one has failed, saves what it has in time.
		launch.Number("STOP_DEADLINE_SECONDS", killSeconds-1),
	)
}

// Ports implements launch.Framework.
func (m mpi) Ports() []launch.Port { return m.GatherPorts() }

// Check implements launch.Framework.
func (m mpi) Check(request launch.Request) *launch.Problem {
	return launch.FreePorts(request, "mpi", m.Ports())
}
