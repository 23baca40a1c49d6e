package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func TestTheManagersDeploymentIsFoundBesideOthers(t *testing.T) {
	own, err := cluster.ReadBundle("../../../bundle")
	require.NoError(t, err)
	deployments := own.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs
	require.Greater(t, len(deployments), 1)
	name, err := own.DeploymentName()
	require.NoError(t, err)
	assert.Equal(t, "spot-training-operator-controller-manager", name)

	own.CSV.Spec.InstallStrategy.StrategySpec.DeploymentSpecs = nil
	_, err = own.DeploymentName()
	assert.ErrorContains(t, err, "0 deployments")
}
