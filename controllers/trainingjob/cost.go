package trainingjob

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/cost"
)

const (
	// costLag is how far status.cost may be behind: it is no reason for a write of its own before.
	costLag = 10 * time.Minute
	// priceAge is how long the price of a node is kept in memory before it is read again.
	priceAge = 10 * time.Minute
	// retryPrice is when a price that could not be read is asked for again.
	retryPrice = time.Minute
)

// observeCost brings the times that the job's pods held their nodes since the cost was last written, with the prices of
// the nodes. A price that cannot be read holds up the cost alone, which is charged once it can, and not the training.
func (r *Reconciler) observeCost(ctx context.Context, o *observed) {
	if c := o.job.Status.Cost; finished(&o.job.Status) && (c == nil || c.PerHour == "0") { // there is nothing more to charge
		r.ledger.forget(client.ObjectKeyFromObject(o.job))
		return
	}
	requests := requestsOf(o.job)
	for _, use := range r.ledger.uses(o.job, o.pods, o.now) {
		price, err := r.prices.of(ctx, r.Direct, use.node, o.now)
		if err != nil {
			o.usages, o.priceUnread = nil, true
			return
		}
		usage := cost.Usage{Start: use.start, End: use.end}
		if price != nil {
			usage.PerHour, usage.Currency = price.Rate(requests), price.Currency
		}
		o.usages = append(o.usages, usage)
	}
}

// requestsOf is what one worker requests; limits stand for requests that are not set, as for any pod.
func requestsOf(job *mlv1.TrainingJob) corev1.ResourceList {
	of := workerResources(job)
	requests := maps.Clone(of.Limits)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	maps.Copy(requests, of.Requests)
	return requests
}

// chargeCost brings the cost into a status that is written anyway. When nothing else changed the old cost stays, unless
// it is too far behind or the last pod has ended.
func chargeCost(o observed, status *mlv1.TrainingJobStatus) {
	before := o.job.Status.Cost
	status.Cost = before
	if o.priceUnread {
		return
	}
	next := cost.Charge(before, o.usages, o.now)
	if next == nil || (equality.Semantic.DeepEqual(&o.job.Status, status) && !costDue(before, next, o)) {
		return
	}
	status.Cost = next
}

// costDue says whether a cost is worth a write of its own.
func costDue(before, next *mlv1.CostStatus, o observed) bool {
	if before == nil || before.Time == nil {
		for _, usage := range o.usages {
			if o.now.Sub(usage.Start) >= costLag {
				return true
			}
		}
		return false
	}
	if next.Total == before.Total && next.PerHour == before.PerHour && next.UnpricedWorkers == before.UnpricedWorkers {
		return false
	}
	return o.now.Sub(before.Time.Time) >= costLag || (next.PerHour == "0" && finished(&o.job.Status))
}

// use is the time that a pod holds its part of a node: from when the kubelet took it until its end, which is zero while
// it runs.
type use struct {
	node       string
	start, end time.Time
}

// ledger keeps the uses of pods that may be gone from the cache before their cost is written.
type ledger struct {
	mutex sync.Mutex
	jobs  map[types.NamespacedName]map[types.UID]use
}

// note remembers the use of a pod as an event shows it.
func (l *ledger) note(pod *corev1.Pod, now time.Time) {
	if _, ours := pod.Annotations[mlv1.AnnotationAttempt]; !ours {
		return
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.enter(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[mlv1.LabelTrainingJob]}, pod, now)
}

func (l *ledger) enter(job types.NamespacedName, pod *corev1.Pod, now time.Time) {
	if pod.Status.StartTime == nil || pod.Spec.NodeName == "" {
		return
	}
	known := l.jobs[job][pod.UID]
	next := use{node: pod.Spec.NodeName, start: pod.Status.StartTime.Time, end: known.end}
	switch ended := workerProgram.Terminated(pod); {
	case ended != nil && !ended.FinishedAt.IsZero():
		next.end = ended.FinishedAt.Time
	case next.end.IsZero() && (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded):
		next.end = now
	}
	if l.jobs == nil {
		l.jobs = map[types.NamespacedName]map[types.UID]use{}
	}
	if l.jobs[job] == nil {
		l.jobs[job] = map[types.UID]use{}
	}
	l.jobs[job][pod.UID] = next
}

// uses are those that are not yet settled. A pod that is no longer there has ended, now at the latest.
func (l *ledger) uses(job *mlv1.TrainingJob, pods []*corev1.Pod, now time.Time) []use {
	key := client.ObjectKeyFromObject(job)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	present := map[types.UID]bool{}
	for _, pod := range pods {
		present[pod.UID] = true
		l.enter(key, pod, now)
	}
	var list []use
	for uid, u := range l.jobs[key] {
		if u.start.Before(job.CreationTimestamp.Time) { // of an earlier job of this name
			continue
		}
		if u.end.IsZero() && !present[uid] {
			u.end = now
			l.jobs[key][uid] = u
		}
		list = append(list, u)
	}
	return list
}

// settle forgets the uses that had ended by the time of the cost that was written. Without a cost there is nothing to
// keep them for.
func (l *ledger) settle(job types.NamespacedName, written *mlv1.CostStatus, now time.Time) {
	until := now
	if written != nil && written.Time != nil {
		until = written.Time.Time
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	maps.DeleteFunc(l.jobs[job], func(_ types.UID, u use) bool { return !u.end.IsZero() && !u.end.After(until) })
	if len(l.jobs[job]) == 0 {
		delete(l.jobs, job)
	}
}

func (l *ledger) forget(job types.NamespacedName) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.jobs, job)
}

// priceList keeps the prices of nodes that ran workers. Nodes are read one by one and seldom, rather than held in the
// cache: most of a node's object is of no interest here, and changes every minute.
type priceList struct {
	mutex sync.Mutex
	nodes map[string]knownPrice
}

type knownPrice struct {
	price *cost.Price // nil for none
	read  time.Time
	// failed is when it could not be read, and why; a price from before that stays good.
	failed time.Time
	why    error
}

// of returns the price of a node; nil when it has none. The last price of a node that is gone, or cannot be read, stays good.
func (p *priceList) of(ctx context.Context, nodes client.Reader, name string, now time.Time) (*cost.Price, error) {
	p.mutex.Lock()
	known, ok := p.nodes[name]
	p.mutex.Unlock()
	switch {
	case ok && now.Sub(known.read) < priceAge:
		return known.price, nil
	case ok && now.Sub(known.failed) < retryPrice:
		return known.usable()
	}
	var node corev1.Node
	err := nodes.Get(ctx, client.ObjectKey{Name: name}, &node)
	switch {
	case err == nil:
		known = knownPrice{read: now}
		if price, priced := cost.PriceOf(&node); priced {
			known.price = &price
		}
	case apierrors.IsNotFound(err):
		known = knownPrice{price: known.price, read: now}
	default:
		known.failed, known.why = now, fmt.Errorf("read the price of node %s: %w", name, err)
		log.FromContext(ctx).Info("The price of a node cannot be read: the cost is charged once it can", "node", name, "error", err.Error())
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.nodes == nil {
		p.nodes = map[string]knownPrice{}
	}
	maps.DeleteFunc(p.nodes, func(_ string, k knownPrice) bool {
		return now.Sub(k.read) > 24*time.Hour && now.Sub(k.failed) > 24*time.Hour
	})
	p.nodes[name] = known
	return known.usable()
}

func (k knownPrice) usable() (*cost.Price, error) {
	if k.read.IsZero() {
		return nil, k.why
	}
	return k.price, nil
}
