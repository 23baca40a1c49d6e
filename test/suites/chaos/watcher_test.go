package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// What is checked at each change of an object, and after each seed.
const (
	oneOfARank      = "no two pods of one rank at a time"
	oneOfAHost      = "no two pods answer to one host name"
	neverBack       = "a status does not go back"
	withinQuota     = "a queue's jobs are given no more than its quota"
	noSecret        = "no secret is told"
	endsExplained   = "an object ends in a state that its spec explains"
	countsAgree     = "counts agree with what happened"
	queueFree       = "a queue whose jobs have ended is free"
	placeGivenBack  = "a job that cannot start is evicted from its queue"
	nothingLeft     = "nothing is left of a namespace that is deleted"
	noSeriesLeft    = "no metric describes a namespace that is gone"
	noInstanceLeft  = "no instance is left"
	rests           = "a manager with nothing to do writes nothing"
	noPanic         = "no manager panics"
	explainsWaiting = "an object has a condition that says where it stands"
	endsWithoutNode = "all ends though a node stays dead"
	noChildLeft     = "no child is left of objects that are deleted"
)

var invariants = []string{
	oneOfARank, oneOfAHost, neverBack, withinQuota, noSecret, endsExplained, countsAgree, queueFree, placeGivenBack, nothingLeft, noSeriesLeft, noInstanceLeft, rests,
	noPanic, explainsWaiting, endsWithoutNode, noChildLeft,
}

// watcher sees each version of each object, by a watch of its own that no fault reaches.
type watcher struct {
	*world

	objects cache.Cache

	mu    sync.Mutex
	seen  map[string]uint64 // the last revision of each kind
	held  map[string][]holding
	quota map[string][]holding          // of each queue: what it allowed in all
	jobs  map[types.UID]*batchv1.Job    // all there ever were of the namespace
	ended map[types.UID]time.Time       // when an object was seen to have ended
	taken map[types.UID]map[string]bool // the Jobs of a SpotInstanceJob that were called preempted
}

// holding is what a job holds of the quota of its queue from a revision of the database on. Kinds are watched apart, so that what is seen
// first of two jobs need not have been first.
type holding struct {
	revision uint64
	job      types.UID
	name     string
	milli    int64
}

func startWatcher(w *world) *watcher {
	objects, err := cache.New(w.config, cache.Options{Scheme: scheme})
	require.NoError(w.t, err)
	v := &watcher{world: w, objects: objects, seen: map[string]uint64{}}
	v.forget()
	for _, kind := range []client.Object{
		&mlv1.TrainingJob{}, &aiplatformv1alpha1.AIJob{}, &aiplatformv1alpha1.AIJobQueue{}, &aiplatformv1alpha1.AgentWorkflow{},
		&spotv1alpha1.SpotInstanceJob{}, &spotv1alpha1.SpotInstanceVM{}, &batchv1.Job{}, &corev1.Pod{}, &eventsv1.Event{},
		&corev1.Node{}, &corev1.ConfigMap{},
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
	if before != nil && before.GetUID() != after.GetUID() { // it was deleted and created again
		before = nil
	}
	if was, is := figuresOf(before), figuresOf(after); len(was.grow) > 0 && len(is.grow) > 0 {
		v.checks.add(neverBack)
		for i := range is.grow {
			if is.grow[i] < was.grow[i] {
				v.note("%T %s: its counts went from %v to %v", after, client.ObjectKeyFromObject(after), was.grow, is.grow)
				break
			}
		}
		if was.end != "" && is.end != was.end {
			v.note("%T %s: it had ended as %s, and is %q now", after, client.ObjectKeyFromObject(after), was.end, is.end)
		}
		if was.end != "" && !slices.Equal(was.grow[1:], is.grow[1:]) {
			v.note("%T %s: it had ended, and its counts went from %v to %v", after, client.ObjectKeyFromObject(after), was.grow, is.grow)
		}
		v.goesOn(before, after)
	}
	v.remember(before, after)
}

// goesOn checks that what has begun is not told to wait for its begin again.
func (v *watcher) goesOn(before, after client.Object) {
	switch is := after.(type) {
	case *aiplatformv1alpha1.AIJob:
		was := before.(*aiplatformv1alpha1.AIJob)
		if triesOf(was) == triesOf(is) && stage(is) < stage(was) {
			v.note("AIJob %s/%s: try %d was %s, and is %q now", is.Namespace, is.Name, triesOf(is), was.Status.Phase, is.Status.Phase)
		}
	case *mlv1.TrainingJob:
		was := before.(*mlv1.TrainingJob)
		again := is.Status.State == mlv1.StateInitializing || is.Status.State == mlv1.StatePending || is.Status.State == ""
		if was.Status.State == mlv1.StateRunning && again && was.Status.StartCount == is.Status.StartCount {
			v.note("TrainingJob %s/%s: start %d was Running, and is %q now", is.Namespace, is.Name, is.Status.StartCount, is.Status.State)
		}
	}
}

// remember keeps what is asked for at the end of a seed.
func (v *watcher) remember(before, after client.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[kindOf(after)] = max(v.seen[kindOf(after)], revisionOf(after))
	if _, known := v.ended[after.GetUID()]; !known && figuresOf(after).end != "" {
		v.ended[after.GetUID()] = time.Now()
	}
	switch o := after.(type) {
	case *batchv1.Job:
		v.jobs[o.UID] = o
	case *corev1.Pod:
		for _, condition := range o.Status.Conditions {
			if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
				v.nodes.history.lost(o)
			}
		}
	case *spotv1alpha1.SpotInstanceJob:
		for _, replica := range o.Status.JobStatuses {
			if replica.Phase == spotv1alpha1.ReplicaPreempted {
				if v.taken[o.UID] == nil {
					v.taken[o.UID] = map[string]bool{}
				}
				v.taken[o.UID][replica.Name] = true
			}
		}
	case *aiplatformv1alpha1.AIJobQueue:
		if o.Spec.Quotas != nil && o.Spec.Quotas.CPU != nil {
			v.quota[o.Name] = append(v.quota[o.Name], holding{revision: revisionOf(o), milli: o.Spec.Quotas.CPU.MilliValue()})
		}
	case *mlv1.TrainingJob:
		if o.Spec.Scheduling != nil {
			v.holds(o, o.Spec.Scheduling.QueueName, millisOfTraining(o))
		}
	case *aiplatformv1alpha1.AIJob:
		v.holds(o, o.Spec.QueueName, millisOfAIJob(o))
		was, ok := before.(*aiplatformv1alpha1.AIJob)
		if ok && was != nil && o.Status.PreemptionCount > was.Status.PreemptionCount && o.Status.Reason == reasons.Preempted {
			v.nodes.history.ofAttempt(attempt{o.UID, fmt.Sprint(triesOf(was))}, func(f *outcome) { f.open = true })
		}
	}
}

// forget begins again for the next seed.
func (v *watcher) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held, v.jobs, v.ended = map[string][]holding{}, map[types.UID]*batchv1.Job{}, map[types.UID]time.Time{}
	v.taken, v.quota = map[types.UID]map[string]bool{}, map[string][]holding{}
}

// allowed is what the jobs of a queue might hold at a revision. Quotas are only raised.
func (v *watcher) allowed(queue string, revision uint64) (milli int64) {
	for _, quota := range v.quota[queue] {
		if quota.revision < revision {
			milli = max(milli, quota.milli)
		}
	}
	return milli
}

func (v *watcher) gone(object any) {
	if deleted, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = deleted.Obj
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if last, ok := object.(client.Object); ok {
		v.seen[kindOf(last)] = max(v.seen[kindOf(last)], revisionOf(last))
	}
	switch o := object.(type) {
	case *mlv1.TrainingJob:
		if o.Spec.Scheduling != nil {
			v.holds(o, o.Spec.Scheduling.QueueName, 0)
		}
	case *aiplatformv1alpha1.AIJob:
		v.holds(o, o.Spec.QueueName, 0)
	}
}

// figures are what never goes back.
type figures struct {
	grow []int64 // the first is the generation
	end  string  // the state in which it ended; empty while it has not
}

func figuresOf(object client.Object) figures {
	switch o := object.(type) {
	case *mlv1.TrainingJob:
		s := o.Status
		f := figures{grow: []int64{s.ObservedGeneration, int64(s.RestartCount), int64(s.StartCount), int64(s.WorkerFailures), int64(s.DisruptionCount)}}
		if s.State == mlv1.StateCompleted || s.State == mlv1.StateFailed {
			f.end = string(s.State)
		}
		return f
	case *aiplatformv1alpha1.AIJob:
		s := o.Status
		// A retry that turns out to be the loss of a node becomes a preemption.
		f := figures{grow: []int64{s.ObservedGeneration, int64(s.RetryCount + s.PreemptionCount), int64(s.PreemptionCount)}}
		if s.Phase.Ended() {
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

func triesOf(job *aiplatformv1alpha1.AIJob) int32 {
	return job.Status.RetryCount + job.Status.PreemptionCount
}

// stage is how far an AIJob has come with its present try. A try does not go back; only the next one begins again.
func stage(job *aiplatformv1alpha1.AIJob) int {
	switch job.Status.Phase {
	case aiplatformv1alpha1.AIJobQueued:
		return 1
	case aiplatformv1alpha1.AIJobScheduled:
		return 2
	case aiplatformv1alpha1.AIJobRunning:
		return 3
	}
	if job.Status.Phase.Ended() {
		return 4
	}
	return 0
}

// millisOfTraining and millisOfAIJob are what a job holds that has its place, in CPU, milli-units.
func millisOfTraining(job *mlv1.TrainingJob) (milli int64) {
	if admission := job.Status.Admission; admission != nil && job.Spec.Resources != nil && figuresOf(job).end == "" {
		for _, place := range admission.Assignments {
			milli += int64(place.Workers) * job.Spec.Resources.Requests.Cpu().MilliValue()
		}
	}
	return milli
}

// An AIJob keeps its place until its pods have stopped.
func millisOfAIJob(job *aiplatformv1alpha1.AIJob) (milli int64) {
	if job.Spec.Resources == nil {
		return 0
	}
	for _, place := range job.Status.Assignments {
		milli += int64(place.Members) * job.Spec.Resources.Requests.Cpu().MilliValue()
	}
	return milli
}

// holds notes what a job holds of its queue's quota since its last version.
func (v *watcher) holds(job client.Object, queue string, milli int64) {
	if queue == "" {
		return
	}
	v.held[queue] = append(v.held[queue], holding{revisionOf(job), job.GetUID(), job.GetName(), milli})
}

// hasHeld says whether a job ever had a place in a queue.
func (v *watcher) hasHeld(job types.UID, queue string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.held[queue], func(h holding) bool { return h.job == job && h.milli > 0 })
}

func kindOf(object client.Object) string { return fmt.Sprintf("%T", object) }

// revisionOf is that of the database at which an object was written last, or a list was read.
func revisionOf(of interface{ GetResourceVersion() string }) uint64 {
	revision, err := strconv.ParseUint(of.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%T: %v", of, err))
	}
	return revision
}

// marks are changed to learn how far the watches are that report objects which are gone again. No kubelet runs them.
func marks() []client.Object {
	named := metav1.ObjectMeta{Name: "mark", Namespace: metav1.NamespaceDefault}
	pod := corev1.PodSpec{
		SchedulerName: "none", RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/none:1"}},
	}
	return []client.Object{
		&corev1.Pod{ObjectMeta: named, Spec: pod},
		&batchv1.Job{ObjectMeta: named, Spec: batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: pod}}},
	}
}

// catchUp waits until all has been seen that has happened to Jobs and pods so far, and to objects that were read.
func (v *watcher) catchUp(ctx context.Context, read ...client.Object) {
	for _, mark := range marks() {
		if err := client.IgnoreAlreadyExists(v.Create(ctx, mark)); err != nil {
			v.note("create %T: %v", mark, err)
			return
		}
		change := fmt.Appendf(nil, `{"metadata":{"annotations":{"at":"%d"}}}`, time.Now().UnixNano())
		if err := v.Patch(ctx, mark, client.RawPatch(types.MergePatchType, change)); err != nil {
			v.note("patch %T: %v", mark, err)
			return
		}
		read = append(read, mark)
	}
	missing := v.await(func(context.Context) (string, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, object := range read {
			if v.seen[kindOf(object)] < revisionOf(object) {
				return fmt.Sprintf("%T %s at revision %s", object, object.GetName(), object.GetResourceVersion()), nil
			}
		}
		return "", nil
	})
	if missing != "" {
		v.note("the watches of this test did not show %s", missing)
	}
}

// keptQuota adds up, at each revision of the database, what the jobs of a queue held. None may be given more while there is no room, by one
// manager: jobs keep what two have given.
func (v *watcher) keptQuota(queue string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	history, held, total := v.held[queue], map[types.UID]holding{}, int64(0)
	slices.SortStableFunc(history, func(a, b holding) int { return cmp.Compare(a.revision, b.revision) })
	for _, next := range history {
		more := next.milli - held[next.job].milli
		total += more
		held[next.job] = next
		if more <= 0 || v.pairs.at(next.revision) {
			continue
		}
		v.checks.add(withinQuota)
		if allowed := v.allowed(queue, next.revision); total > allowed {
			var names []string
			for _, holds := range held {
				if holds.milli > 0 {
					names = append(names, fmt.Sprintf("%s %dm since revision %d", holds.name, holds.milli, holds.revision))
				}
			}
			v.note("queue %s has a quota of %dm, and its jobs held %dm at revision %d: %s", queue, allowed, total, next.revision, strings.Join(names, ", "))
			return
		}
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
