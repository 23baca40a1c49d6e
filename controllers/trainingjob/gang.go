package trainingjob

import (
	"fmt"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/gang"
)

// observedGang is who starts the workers of a job together.
type observedGang struct {
	// scheduler is a name of package gang; empty when the job needs no gang.
	scheduler string
	// version of the scheduler's PodGroup that the cluster serves; empty when it serves none.
	version string
	// named says that the job names the scheduler: it must not start without.
	named bool
}

// gangSize is how many workers must start together: of those that can join one by one, the least that can train.
func (o *observed) gangSize() int32 {
	if o.workers != nil && isResizable(o.workers) || o.workers == nil && build.ResizesInPlace(o.job, o.settings) {
		return o.job.Spec.Elastic.MinWorkers
	}
	return o.job.Spec.NumWorkers
}

// releaseGang deletes the PodGroup of a job that no longer runs.
func (p *planner) releaseGang() {
	scheduler := p.gang.scheduler
	if p.workers != nil {
		scheduler = p.workers.Annotations[mlv1.AnnotationGangScheduler]
	}
	if p.gang.version != "" && scheduler != "" && p.job.Status.State != mlv1.StateSuspended {
		p.delete = append(p.delete, gang.Group(p.job, scheduler, p.gang.version))
	}
}

// admission says whether the job may use its resources, when it has no AIJobQueue.
func (o *observed) admission() (admitted bool, reason, message string) {
	scheduler := o.gang.scheduler
	if o.workers != nil {
		scheduler = o.workers.Annotations[mlv1.AnnotationGangScheduler]
	} else if o.gang.version == "" {
		scheduler = ""
	}
	queue := build.LocalQueue(o.job)
	switch {
	case queue != "" && (o.workers == nil || isHeldByKueue(o.workers)):
		return false, reasons.Queued, fmt.Sprintf("waiting for Kueue to admit it through LocalQueue %s", queue)
	case queue != "":
		return true, reasons.AdmittedByQueue, fmt.Sprintf("admitted by Kueue through LocalQueue %s", queue)
	case scheduler != "":
		return true, reasons.GangScheduled, fmt.Sprintf("%s starts the %d workers together", scheduler, o.job.Spec.NumWorkers)
	case gang.IsWanted(o.job):
		return true, reasons.AdmittedUnqueued, fmt.Sprintf("admitted at once because the job names no queue; it names no gang scheduler, so "+
			"some of its %d workers may start and wait for the others", o.job.Spec.NumWorkers)
	}
	return true, reasons.AdmittedUnqueued, "admitted at once because the job names no queue"
}
