package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAJobWaitsForTheJobThatItResumesFrom(t *testing.T) {
	job := builders.TrainingJob("bert").Checkpoints().ResumeFrom("old").Obj()
	waits := plan(see(job, nil))
	assert.Equal(t, mlv1.StatePending, waits.status.State)
	assert.Equal(t, reasons.ResumeSourceNotFound, waits.status.Reason)
	assert.Contains(t, waitingMessage(&waits.status), "there is no TrainingJob old with a checkpoint in namespace default")
	assert.Positive(t, waits.again)

	o := see(job, builders.Workers(job).Obj())
	o.resume = &mlv1.ResumeSource{URI: "pvc://old-checkpoints/old/uid-of-old"}
	assert.Equal(t, o.resume, plan(o).status.ResumeSource, "it is remembered, since the other job may be deleted")
}
