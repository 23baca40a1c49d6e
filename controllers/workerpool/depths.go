package workerpool

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// slower is how much longer the interval is while the job service does not answer.
const slower = 5

// depths asks the job service again and again, for all queues at once, as long as one has workers. It runs in the leader only.
type depths struct {
	reader   client.Reader
	queues   func(context.Context) (map[string]Figures, error)
	interval time.Duration
	changed  chan event.TypedGenericEvent[types.NamespacedName]

	lock    sync.Mutex
	asked   bool
	problem string
	figures map[string]Figures
}

// of a queue. One that the job service does not know has no tasks.
func (d *depths) of(queue string) answer {
	d.lock.Lock()
	defer d.lock.Unlock()
	return answer{asked: d.asked, problem: d.problem, figures: d.figures[queue]}
}

// Start asks until the context ends.
func (d *depths) Start(ctx context.Context) error {
	for next := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
		if next = d.interval; !d.ask(ctx) {
			next *= slower
		}
	}
}

// ask tells the controller of the queues with workers whose figures are others now. It says false when there is no answer.
func (d *depths) ask(ctx context.Context) bool {
	var list aiplatformv1alpha1.AIJobQueueList
	if err := d.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return false // the cache ends with the manager
	}
	var pools []string
	for i := range list.Items {
		if list.Items[i].Spec.Workers != nil {
			pools = append(pools, list.Items[i].Name)
		}
	}
	if len(pools) == 0 {
		return true
	}
	figures, err := d.queues(ctx)
	if ctx.Err() != nil {
		return false
	}
	for _, queue := range d.learn(pools, figures, err) {
		select {
		case d.changed <- event.TypedGenericEvent[types.NamespacedName]{Object: types.NamespacedName{Name: queue}}:
		case <-ctx.Done():
			return false
		}
	}
	return err == nil
}

// learn takes an answer in, and returns the queues whose figures changed. While there is no answer the last figures stay.
func (d *depths) learn(pools []string, figures map[string]Figures, err error) (changed []string) {
	d.lock.Lock()
	defer d.lock.Unlock()
	problem := ""
	if err != nil {
		problem, figures = err.Error(), d.figures
	}
	all := !d.asked || problem != d.problem
	for _, queue := range pools {
		if all || figures[queue] != d.figures[queue] {
			changed = append(changed, queue)
		}
	}
	d.asked, d.problem, d.figures = true, problem, figures
	return changed
}
