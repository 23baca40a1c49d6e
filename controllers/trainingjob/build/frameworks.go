package build

import (
	"fmt"
	"strconv"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
)

// Check names the field for which the job cannot be run, and says why and what to do; empty when it can. The admission webhook asks
// before a job is stored, and the plan before it is started. It is no rule of the CRD: a rule that is added refuses what users of the last
// release have, and OLM refuses the upgrade; and it sees what rules cannot.
func Check(job *mlv1.TrainingJob) (field, message string) {
	if problem := FrameworkProblem(job); problem != nil {
		return problem.Field, problem.Message
	}
	return SpecProblem(job)
}

// SpecProblem names the first field that does not go with the others, and says why; empty when all do.
func SpecProblem(job *mlv1.TrainingJob) (field, message string) {
	if field, message = ElasticProblem(job); field != "" {
		return field, message
	}
	return podbuild.Conflict(&job.Spec.Settings, job.Spec.Source, job.Spec.Resources, leastGracePeriod(job))
}

// FrameworkProblem says why the operator cannot run the framework of a job, or not as its spec asks; nil when it can.
func FrameworkProblem(job *mlv1.TrainingJob) *framework.Problem {
	known, ok := framework.For(job.Spec.Framework)
	if !ok {
		return &framework.Problem{Field: "spec.framework", Message: fmt.Sprintf(
			"this version of the operator does not run %s: use pytorch, tensorflow, jax, ray, mpi or xgboost", job.Spec.Framework)}
	}
	return known.Check(framework.Request{
		Image: job.Spec.Image, Program: namedProgram(job),
		Taken: map[string]int32{
			"spec.monitoring.metricsPort": job.Spec.Monitoring.MetricsPort, "spec.networking.masterPort": job.Spec.Networking.MasterPort,
		},
	})
}

// Topology is the process group of the job's workers.
func Topology(job *mlv1.TrainingJob) framework.Topology {
	hosts := make([]string, job.Spec.NumWorkers)
	for replica := range hosts {
		hosts[replica] = WorkersName(job) + "-" + strconv.Itoa(replica) + "." + HeadlessName(job)
	}
	return framework.Topology{
		ID: string(job.UID), Workers: job.Spec.NumWorkers, GPUsPerWorker: GpusPerWorker(job),
		Hosts: hosts, MasterAddress: masterAddress(job), MasterPort: job.Spec.Networking.MasterPort,
	}
}

// frameworkOf is the job's framework; nothing is known of one that this version cannot run.
func frameworkOf(job *mlv1.TrainingJob) framework.Framework {
	known, _ := framework.For(job.Spec.Framework)
	return known
}

func namedProgram(job *mlv1.TrainingJob) framework.Program {
	return framework.Program{Command: job.Spec.Command, Args: job.Spec.Args}
}
