// Package build builds the children of a TrainingJob: its Job with the pods of the workers, Services, ConfigMap, claim and NetworkPolicy.
// Everything in it is a pure function of the spec, what the status says of earlier attempts, and the settings of the installation.
package build

import (
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

// Settings are what the operator's installation says about training jobs.
type Settings struct {
	// WorkerImage is the image of workers whose job names none.
	WorkerImage string
	// TensorBoardImage is the image of TensorBoard for jobs that name none.
	TensorBoardImage string
	// Namespace is the manager's own; empty when it does not run in the cluster.
	Namespace string
	// IsolateJobs isolates the pods of jobs that do not say whether they are to be. Those of Ray jobs are isolated without it.
	IsolateJobs bool
	// DefaultResources are those of workers whose job names none.
	DefaultResources workerdefaults.Defaults
	// RequireQueue keeps jobs from being started that name neither an AIJobQueue nor a LocalQueue of Kueue.
	RequireQueue bool
	// AgentImage is the image of the checkpoint agent: the operator's own.
	AgentImage string
	// AgentPort is where the agent listens in its pod; 0 for the default.
	AgentPort int32
}

// DefaultImage is the image of the workers of a job that names none; empty when the training worker does not know the
// framework.
func (s Settings) DefaultImage(name mlv1.Framework) string {
	if known, ok := framework.For(name); !ok || !known.HasDefaultImage() {
		return ""
	}
	return s.WorkerImage
}
