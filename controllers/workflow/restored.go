package workflow

import aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"

// takeOver makes a status that came with the workflow from a backup that of the workflow as it is now. Stages that had ended have ended with
// what they reported; the AIJobs of the others were those of another cluster, and are made again. So were the events that the trigger has seen.
func (p *planner) takeOver() {
	from := p.status.UID
	if from != "" || p.running() || p.status.Run == 0 { // that of a run that ended before version 0.4 stays as it is
		p.status.UID = p.workflow.UID
	}
	if from == "" || from == p.workflow.UID {
		return
	}
	p.status.LastEventVersion = ""
	for i := range p.status.Stages {
		if stage := &p.status.Stages[i]; !stageEnded(stage) && p.jobOf(stage.Name) == nil {
			*stage = aiplatformv1alpha1.StageStatus{Name: stage.Name, Phase: aiplatformv1alpha1.StagePending}
		}
	}
}
