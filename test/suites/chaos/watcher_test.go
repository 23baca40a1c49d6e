package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// What is checked at each change of an object, and after each seed.
const (
	oneOfARank      = "no two pods of one rank at a time"
	neverBack       = "a status does not go back"
	withinQuota     = "a queue's jobs hold no more than its quota"
	noSecret        = "no secret is told"
	endsExplained   = "an object ends in a state that its spec explains"
	countsAgree     = "counts agree with what happened"
	nothingLeft     = "nothing is left of a namespace that is deleted"
	noInstanceLeft  = "no instance is left"
	rests           = "a manager with nothing to do writes nothing"
	noPanic         = "no manager panics"
	explainsWaiting = "an object has a condition that says where it stands"
)

var invariants = []string{
	oneOfARank, neverBack, withinQuota, noSecret, endsExplained, countsAgree, nothingLeft, noInstanceLeft, rests, noPanic, explainsWaiting,
}

// watcher sees each version of each object, by a watch of its own that no fault reaches.
type watcher struct {
	*world

	mu   sync.Mutex
	held map[string]map[types.NamespacedName]int64
}

func startWatcher(w *world) *watcher {
	v := &watcher{world: w, held: map[string]map[types.NamespacedName]int64{}}
	objects, err := cache.New(w.config, cache.Options{Scheme: scheme})
	require.NoError(w.t, err)
	for _, kind := range []client.Object{
		&mlv1.TrainingJob{}, &aiplatformv1alpha1.AIJob{}, &aiplatformv1alpha1.AIJobQueue{}, &aiplatformv1alpha1.AgentWorkflow{},
		&spotv1alpha1.SpotInstanceJob{}, &spotv1alpha1.SpotInstanceVM{}, &corev1.Pod{}, &eventsv1.Event{},
	} {
		informer, err := objects.GetInformer(w.t.Context(), kind, cache.BlockUntilSynced(false))
		require.NoError(w.t, err)
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { v.saw(nil, object.(client.Object)) },
			UpdateFunc: func(old, object any) { v.saw(old.(client.Object), object.(client.Object)) },
			DeleteFunc: v.gone,
		})
		require.NoError(w.t, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = objects.Start(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
	require.True(w.t, objects.WaitForCacheSync(ctx))
	return v
}

// saw checks one version of an object, and that it follows on the one before.
func (v *watcher) saw(before, after client.Object) {
	v.tellsNoSecret(after)
	if before != nil && before.GetUID() != after.GetUID() {
		before = nil
	}
	if before != nil {
		v.checks.add(neverBack)
		was, is := figuresOf(before), figuresOf(after)
		for i := range is.grow {
			if is.grow[i] < was.grow[i] {
				v.note("%T %s: its counts went from %v to %v", after, client.ObjectKeyFromObject(after), was.grow, is.grow)
				break
			}
		}
		if was.end != "" && is.end != was.end && !is.again {
			v.note("%T %s: it had ended as %s, and is %q now", after, client.ObjectKeyFromObject(after), was.end, is.end)
		}
	}
	if job, ok := after.(*aiplatformv1alpha1.AIJob); ok {
		v.holds(job)
	}
}

func (v *watcher) gone(object any) {
	if deleted, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = deleted.Obj
	}
	if job, ok := object.(*aiplatformv1alpha1.AIJob); ok {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.held[job.Spec.QueueName], client.ObjectKeyFromObject(job))
	}
}

// figures are what never goes back.
type figures struct {
	grow  []int64
	end   string // the state in which it ended; empty while it has not
	again bool   // it is allowed to begin again
}

func figuresOf(object client.Object) figures {
	switch o := object.(type) {
	case *mlv1.TrainingJob:
		s := o.Status
		f := figures{grow: []int64{s.ObservedGeneration, int64(s.RestartCount), int64(s.StartCount), int64(s.WorkerFailures)}}
		if s.State == mlv1.StateCompleted || s.State == mlv1.StateFailed {
			f.end = string(s.State)
		}
		return f
	case *aiplatformv1alpha1.AIJob:
		s := o.Status
		// A retry that turns out to be the loss of a node becomes a preemption.
		f := figures{grow: []int64{s.ObservedGeneration, int64(s.RetryCount + s.PreemptionCount), int64(s.PreemptionCount)}}
		if aiJobEnded(s.Phase) {
			f.end = string(s.Phase)
		}
		return f
	case *spotv1alpha1.SpotInstanceJob:
		s := o.Status
		f := figures{grow: []int64{s.ObservedGeneration, int64(s.PreemptionCount)}}
		if s.Phase == spotv1alpha1.JobSucceeded || s.Phase == spotv1alpha1.JobFailed {
			f.end = string(s.Phase)
		}
		return f
	case *aiplatformv1alpha1.AgentWorkflow:
		s := o.Status
		f := figures{grow: []int64{s.ObservedGeneration, int64(s.Run)}}
		if s.Phase == aiplatformv1alpha1.WorkflowSucceeded || s.Phase == aiplatformv1alpha1.WorkflowFailed {
			f.end = string(s.Phase)
		}
		return f
	}
	return figures{}
}

func aiJobEnded(phase aiplatformv1alpha1.AIJobPhase) bool {
	switch phase {
	case aiplatformv1alpha1.AIJobSucceeded, aiplatformv1alpha1.AIJobFailed, aiplatformv1alpha1.AIJobDeadLetter, aiplatformv1alpha1.AIJobCancelled:
		return true
	}
	return false
}

// holds adds up what the AIJobs of a queue hold that have their place.
func (v *watcher) holds(job *aiplatformv1alpha1.AIJob) {
	if job.Spec.QueueName == "" {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	held := v.held[job.Spec.QueueName]
	if held == nil {
		held = map[types.NamespacedName]int64{}
		v.held[job.Spec.QueueName] = held
	}
	delete(held, client.ObjectKeyFromObject(job))
	if job.Status.Phase == aiplatformv1alpha1.AIJobScheduled || job.Status.Phase == aiplatformv1alpha1.AIJobRunning {
		members := int64(1)
		if job.Spec.Gang.MinMembers > 1 {
			members = int64(job.Spec.Gang.MinMembers)
		}
		held[client.ObjectKeyFromObject(job)] = members * job.Spec.Resources.Requests.Cpu().MilliValue()
	}
	v.checks.add(withinQuota)
	total := int64(0)
	for _, milli := range held {
		total += milli
	}
	if total > 1000*queueCPU {
		v.note("queue %s has a quota of %d CPUs, and its AIJobs hold %dm: %v", job.Spec.QueueName, queueCPU, total, held)
	}
}

// tellsNoSecret looks for the content of Secrets in all else.
func (v *watcher) tellsNoSecret(object client.Object) {
	v.checks.add(noSecret)
	text, err := json.Marshal(object)
	if err != nil {
		v.note("marshal %T: %v", object, err)
		return
	}
	if told := secretsIn(string(text)); told != "" {
		v.note("%T %s tells %s", object, client.ObjectKeyFromObject(object), told)
	}
}

// secretsIn names the secret that a text tells.
func secretsIn(text string) string {
	for what, mark := range map[string]string{"a private key": "PRIVATE KEY", "the join token": joinToken} {
		if strings.Contains(text, mark) {
			return what
		}
	}
	return ""
}

// describe says in a line where an object stands.
func describe(object client.Object) string {
	text, _ := json.Marshal(object)
	var parts struct {
		Spec   json.RawMessage `json:"spec"`
		Status json.RawMessage `json:"status"`
	}
	_ = json.Unmarshal(text, &parts)
	return fmt.Sprintf("%T %s: status %s; spec %s", object, client.ObjectKeyFromObject(object), parts.Status, parts.Spec)
}
