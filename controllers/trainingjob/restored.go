package trainingjob

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// takeOver makes a status that came with the job from a backup that of the job as it is now, and returns whether it was one. What it says
// of workers, nodes and a place in a queue is of another cluster. A job that had ended has ended; another goes on from the newest checkpoint
// of the job that was backed up.
func (p *planner) takeOver() bool {
	from := p.status.UID
	if from != "" || !isFinished(&p.status) { // that of a job that ended before version 0.4 stays as it is
		p.status.UID = p.job.UID
	}
	if from == "" || from == p.job.UID {
		return false
	}
	former := mlv1.TrainingJob{Status: p.job.Status}
	former.UID = from
	p.status.Restored = &mlv1.RestoredStatus{UID: build.NewestUID(&former), Time: metav1.NewTime(p.now)}
	message := fmt.Sprintf("restored from a backup of the job with the UID %s", from)
	p.condition(reasons.ConditionRestored, true, reasons.RestoredFromBackup, message)
	if isFinished(&p.status) {
		return true
	}
	p.status.Admission, p.status.Preemption, p.status.UnsettledFailures = nil, nil, nil
	if p.status.State == mlv1.StateRunning {
		p.restart(failure{End: podend.End{Reason: reasons.RestoredFromBackup, Lost: true, Message: message}})
	}
	if p.status.Workers != nil {
		p.status.Workers.Active = 0
	}
	p.lookAgain(time.Millisecond)
	return true
}
