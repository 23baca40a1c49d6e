package framework

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

var mpiTopology = Topology{
	ID: "uid", Workers: 2, GPUsPerWorker: 4, Hosts: []string{"a-training-0.a-headless", "a-training-1.a-headless"},
	MasterAddress: "a-training-0.a-headless", MasterPort: 29500,
}

func TestMPIRunReachesOtherReplicasThroughTheLauncher(t *testing.T) {
	env := map[string]corev1.EnvVar{}
	for _, variable := range mpi.Env(mpiTopology) {
		assert.NotContains(t, env, variable.Name, "twice")
		env[variable.Name] = variable
	}
	for _, name := range []string{"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"} {
		assert.Equal(t, "python3 /etc/training/launcher.py agent", env[name].Value, name)
	}
	assert.Equal(t, "1", env["OMPI_MCA_plm_rsh_no_tree_spawn"].Value, "only replica 0 can reach the others")
	assert.Equal(t, ReplicaIndex("LAUNCH_REPLICA"), env["LAUNCH_REPLICA"])
	assert.Equal(t, "uid", env["LAUNCH_KEY"].Value)
	assert.Equal(t, "4", env["LAUNCH_PROCESSES"].Value)
	assert.Equal(t, "a-training-0.a-headless,a-training-1.a-headless", env["LAUNCH_HOSTS"].Value)
	assert.NotContains(t, env, "RANK", "mpirun says which rank a process is")
}

func TestTheLauncherLiesInTheConfigMap(t *testing.T) {
	assert.Contains(t, mpi.Files()["launcher.py"], "def main(arguments):")
}

func TestTheProgramOfEachRank(t *testing.T) {
	own := mpi.Program(Program{Command: []string{"python", "train.py"}, Args: []string{"--epochs=3"}})
	assert.Equal(t, Program{
		Command: []string{"python3", "/etc/training/launcher.py"}, Args: []string{"mpi", "--", "python", "train.py", "--epochs=3"},
	}, own)
	ours := mpi.Program(Program{})
	assert.Equal(t, []string{"mpi", "--", "python3", "-m", "training_worker"}, ours.Args)
}

func TestThePortOfTheLauncherIsItsOwn(t *testing.T) {
	assert.Nil(t, mpi.Check(Request{Taken: map[string]int32{"spec.networking.masterPort": 29500}}))
	assert.ErrorContains(t, mpi.Check(Request{Taken: map[string]int32{"spec.networking.masterPort": 29499}}),
		"spec.networking.masterPort: 29499 is the port launch of mpi")
}
