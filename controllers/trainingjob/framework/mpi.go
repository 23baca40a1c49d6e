package framework

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// killSeconds is how long the other ranks have to end when one has ended with another code than 0. mpirun takes four times as long, because
// it waits for it at several places.
const killSeconds = 2

// mpi is Open MPI: mpirun on replica 0 runs the job's command once per GPU, and once per worker without GPUs. It reaches the other replicas
// through the launcher, which stands in for ssh: docs/decisions/0012-mpi-without-ssh.md tells why. The launcher writes the host file, and not
// the ConfigMap: this may be a moment behind the pods when the number of workers has changed.
//
// The OMPI_MCA_ variables are read by Open MPI 4, the PRTE_MCA_ ones by Open MPI 5: which program starts daemons, always
// from replica 0, and that these stay in the foreground. Sources: https://docs.open-mpi.org/en/v5.0.x/launching-apps/ssh.html,
// https://docs.open-mpi.org/en/v5.0.x/mca.html and https://www.open-mpi.org/faq/?category=rsh.
var mpi = Framework{
	Name: "mpi", Ports: []Port{launcherPort}, launchMode: "mpi", launchDefault: []string{"python3", "-m", "training_worker"},
	Env: func(topology Topology) []corev1.EnvVar {
		agent := strings.Join(launchCommand, " ") + " agent"
		return append(launcherEnv(topology),
			Text("LAUNCH_HOSTS", strings.Join(topology.Hosts, ",")),
			Text("MASTER_ADDR", topology.MasterAddress),
			Number("MASTER_PORT", topology.MasterPort),
			Text("OMPI_MCA_plm_rsh_agent", agent),
			Number("OMPI_MCA_plm_rsh_no_tree_spawn", 1),
			Number("OMPI_MCA_orte_leave_session_attached", 1),
			Number("OMPI_MCA_odls_base_sigkill_timeout", killSeconds),
			Text("PRTE_MCA_plm_ssh_agent", agent),
			Number("PRTE_MCA_plm_ssh_no_tree_spawn", 1),
			Number("PRTE_MCA_prte_leave_session_attached", 1),
			Number("PRTE_MCA_odls_base_sigkill_timeout", killSeconds),
			// Ranks that wait for others leave the processor to them, because workers may share one.
			Number("OMPI_MCA_mpi_yield_when_idle", 1),
			// In a container the user of the job has no root rights outside of it.
			Number("OMPI_ALLOW_RUN_AS_ROOT", 1),
			Number("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", 1),
			// A rank of the training worker that is told to end, because another one has failed, saves what it has in time.
			Number("STOP_DEADLINE_SECONDS", killSeconds-1),
		)
	},
}
