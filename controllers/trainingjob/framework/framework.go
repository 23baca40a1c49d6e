// Package framework knows what each machine-learning framework needs to form one process group of the workers of a
// training job: one package per framework below this one, behind one small interface.
package framework

import (
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/jax"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/launch"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/mpi"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/pytorch"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/ray"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/tensorflow"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/framework/xgboost"
)

// What the packages below have in common, for those who use this one.
type (
	// Framework says how the workers of a job become one training.
	Framework = launch.Framework
	// Topology is the process group that the workers form.
	Topology = launch.Topology
	// Program is what the container of a worker runs.
	Program = launch.Program
	// Request is what a job itself says of how it is run.
	Request = launch.Request
	// Problem is why a job cannot be run as its spec is.
	Problem = launch.Problem
)

// For returns the settings of a framework; false when this version cannot run it.
func For(name mlv1.Framework) (Framework, bool) {
	known, ok := frameworks[name]
	return known, ok
}

var frameworks = map[mlv1.Framework]Framework{
	mlv1.FrameworkPyTorch:    pytorch.New(),
	mlv1.FrameworkTensorFlow: tensorflow.New(),
	mlv1.FrameworkJAX:        jax.New(),
	mlv1.FrameworkRay:        ray.New(),
	mlv1.FrameworkMPI:        mpi.New(),
	mlv1.FrameworkXGBoost:    xgboost.New(),
}
