package spotinstancevm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// indexQueued is the cache index of the TrainingJobs that a queue admits, by the SpotInstanceVM that they name.
const indexQueued = "queued-for-spot-instance-vm"

// gang are the pods of a job that waits in a queue until there is room for all of them. They do not exist yet.
type gang struct {
	job   string // as kind/name
	since time.Time
	pods  []capacity.Pod
}

func gangOf(pods []*corev1.Pod) gang {
	g := gang{job: jobOf(pods[0]), since: pods[0].CreationTimestamp.Time}
	for _, pod := range pods {
		g.pods = append(g.pods, demanding(pod))
	}
	return g
}

// shortage is a gang for which more instances are needed than there may be.
type shortage struct {
	job           string
	needed, alone int // together with all other pods, and by itself
}

func (s *shortage) condition(most int) conditionValue {
	remedy := "raise it, or wait until a job ends"
	if s.alone > most {
		remedy = "raise it, or give the job fewer or smaller workers"
	}
	return conditionValue{metav1.ConditionFalse, reasons.MaxInstancesReached, fmt.Sprintf(
		"%s waits in its queue for room for all its pods, which takes %d further instances, more than spec.maxInstances (%d) leaves: %s",
		s.job, s.needed, most, remedy)}
}

// packGangs adds the pods of gangs to the demand, the one first that has waited longest.
func (p *planner) packGangs(room capacity.Resources) {
	if len(p.queued) == 0 {
		return
	}
	bins := p.binsForGangs()
	for _, g := range p.queued {
		var goOn bool
		if bins, goOn = p.packGang(g, bins, room); !goOn {
			return
		}
	}
}

// packGang adds the pods of a gang, if there may be room for all: instances for a part of them would do nothing but cost. It returns
// what room is left, and false when those that come after are to get no instances either, so that they do not take what this one
// waits for.
func (p *planner) packGang(g gang, bins []capacity.Bin, room capacity.Resources) ([]capacity.Bin, bool) {
	for _, pod := range g.pods {
		if !pod.Needs.Fits(room) {
			p.packing.TooLarge = append(p.packing.TooLarge, pod)
			return bins, true
		}
	}
	if hadRoom(g, bins) {
		p.packing.Unexplained = append(p.packing.Unexplained, g.pods[0])
		return bins, true
	}
	packing := capacity.Pack(g.pods, bins, room)
	if needed := len(p.packing.New) + len(packing.New); needed > max(p.most()-p.alive(), 0) {
		p.short = &shortage{job: g.job, needed: needed, alone: len(capacity.Pack(g.pods, nil, room).New)}
		return bins, p.short.alone > p.most()
	}
	p.demand, p.packing.New = slices.Concat(p.demand, g.pods), slices.Concat(p.packing.New, packing.New)
	maps.Copy(p.packing.Used, packing.Used)
	p.d.lookAgain(settleIn)
	return packing.Bins, true
}

// binsForGangs are the instances, with the pods that exist on them, and with the room that the queues can give: those know of
// all pods, and of jobs whose pods are still to come.
func (p *planner) binsForGangs() []capacity.Bin {
	bins := slices.Clone(p.packing.Bins)
	for n := range bins {
		bin := &bins[n]
		at := slices.IndexFunc(p.instances, func(i *instance) bool { return i.Name == bin.Name })
		if at < 0 || p.instances[at].phase() != phaseReady {
			continue
		}
		i := p.instances[at]
		if i.hasWork() && i.use != nil { // what the pods of every node take on an empty one is no reason for another
			left := capacity.Of(i.node.Status.Allocatable).Minus(i.use.Taken)
			bin.Free = capacity.Resources{
				MilliCPU: min(bin.Free.MilliCPU, left.MilliCPU), Memory: min(bin.Free.Memory, left.Memory), GPUs: min(bin.Free.GPUs, left.GPUs),
			}
		}
		if since := i.memo.emptySince; !i.hasWork() && (since.IsZero() || p.now.Sub(since) < settleIn) {
			bin.Tried = time.Time{} // what was there has just gone
		}
	}
	return bins
}

// hadRoom says whether there has been room for a gang for a while. Something else is in its way then.
func hadRoom(g gang, bins []capacity.Bin) bool {
	tried := slices.DeleteFunc(slices.Clone(bins), func(bin capacity.Bin) bool { return bin.Tried.IsZero() || g.since.After(bin.Tried) })
	left := capacity.Pack(g.pods, tried, capacity.Resources{})
	return len(left.TooLarge) == 0 && len(left.New) == 0
}

func (r *Reconciler) observeQueued(ctx context.Context, o *observed) error {
	jobs, err := reconciling.List[*mlv1.TrainingJob](ctx, r, &mlv1.TrainingJobList{},
		client.InNamespace(o.vm.Namespace), client.MatchingFields{indexQueued: o.vm.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if pods := r.Queued(job); len(pods) > 0 && !o.hasPodsOf(jobOf(pods[0])) {
			o.queued = append(o.queued, gangOf(pods))
		}
	}
	slices.SortFunc(o.queued, func(a, b gang) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.job, b.job)) })
	return nil
}

// hasPodsOf says whether a job has pods that stay. It does not wait then, whatever the cache says of it.
func (o *observed) hasPodsOf(job string) bool {
	return slices.ContainsFunc(o.pods, func(pod *corev1.Pod) bool {
		return jobOf(pod) == job && !podend.IsEnded(pod) && pod.DeletionTimestamp == nil
	})
}

// vmOfQueued is the name of the SpotInstanceVM of a TrainingJob that a queue admits, if it has one.
func vmOfQueued(job *mlv1.TrainingJob) []string {
	if s := job.Spec.Scheduling; s != nil && s.Spot != nil && s.QueueName != "" {
		return []string{s.Spot.Name}
	}
	return nil
}

// queuedChanged lets the events of TrainingJobs through that wait for room, or did.
func (r *Reconciler) queuedChanged() predicate.Predicate {
	waits := func(object client.Object) bool {
		job, ok := object.(*mlv1.TrainingJob)
		return ok && vmOfQueued(job) != nil && len(r.Queued(job)) > 0
	}
	changed := predicate.NewPredicateFuncs(waits)
	changed.UpdateFunc = func(e event.UpdateEvent) bool { return waits(e.ObjectOld) || waits(e.ObjectNew) }
	return changed
}
