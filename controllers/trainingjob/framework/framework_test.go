package framework

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func TestFrameworksOfThisVersion(t *testing.T) {
	for name, served := range map[mlv1.Framework]bool{
		mlv1.FrameworkPyTorch: true, mlv1.FrameworkTensorFlow: true, mlv1.FrameworkJAX: true, mlv1.FrameworkRay: true,
		mlv1.FrameworkMPI: true, mlv1.FrameworkXGBoost: true, "": false, "caffe": false,
	} {
		_, ok := For(name)
		assert.Equal(t, served, ok, "framework %q", name)
	}
}

func TestFrameworksOfTheTrainingWorker(t *testing.T) {
	for name, own := range map[mlv1.Framework]bool{
		mlv1.FrameworkPyTorch: true, mlv1.FrameworkMPI: true, mlv1.FrameworkXGBoost: true,
		mlv1.FrameworkTensorFlow: false, mlv1.FrameworkJAX: false, mlv1.FrameworkRay: false,
	} {
		known, ok := For(name)
		require.True(t, ok)
		assert.Equal(t, own, known.HasDefaultImage(), "framework %q", name)
		problem := known.Check(Request{Program: Program{Command: []string{"python", "train.py"}}})
		if own {
			assert.Nil(t, problem, "framework %q", name)
		} else if assert.NotNil(t, problem, "framework %q", name) {
			assert.Equal(t, "spec.image", problem.Field)
		}
	}
}

// Kubernetes puts these names in the pods' and Services' ports, which it bounds to 15 characters and wants unique.
func TestPortsCanStandInServices(t *testing.T) {
	for name, known := range frameworks {
		seen := map[string]bool{"metrics": true, "master": true}
		for _, port := range known.Ports {
			assert.LessOrEqual(t, len(port.Name), 15, "framework %q", name)
			assert.False(t, seen[port.Name], "framework %q has port %s twice", name, port.Name)
			assert.GreaterOrEqual(t, port.Number, int32(1024))
			seen[port.Name] = true
		}
	}
}
