package trainingjob

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/training/cost"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// costPod is a pod on a node since so many minutes after noon.
func costPod(uid string, start int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(uid), Namespace: builders.Namespace,
			Labels: map[string]string{mlv1.LabelTrainingJob: "bert"}, Annotations: map[string]string{mlv1.AnnotationAttempt: "0"},
		},
		Spec:   corev1.PodSpec{NodeName: "node-" + uid},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.NewTime(minute(start)))},
	}
}

func endedAt(pod *corev1.Pod, end int) *corev1.Pod {
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = containerStatus(corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(minute(end))},
	})
	return pod
}

func minute(n int) time.Time { return builders.Noon.Add(time.Duration(n) * time.Minute) }

func TestLedger(t *testing.T) {
	job := builders.TrainingJob("bert").Obj()
	key := client.ObjectKeyFromObject(job)
	of := func(uid string, start int) cost.Usage { return cost.Usage{Node: "node-" + uid, Start: minute(start)} }
	until := func(u cost.Usage, end int) cost.Usage { u.End = minute(end); return u }
	written := func(at int) *mlv1.CostStatus { return &mlv1.CostStatus{Time: ptr.To(metav1.NewTime(minute(at)))} }

	t.Run("a pod that runs", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		assert.Equal(t, []cost.Usage{of("a", 1)}, l.Usages(job, []*corev1.Pod{costPod("a", 1)}, minute(5)))
	})
	t.Run("a pod that no kubelet has taken yet", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		pod := costPod("a", 1)
		pod.Status.StartTime = nil
		assert.Empty(t, l.Usages(job, []*corev1.Pod{pod}, minute(5)))
	})
	t.Run("a pod that ended, and is looked at later", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		assert.Equal(t, []cost.Usage{until(of("a", 1), 3)}, l.Usages(job, []*corev1.Pod{endedAt(costPod("a", 1), 3)}, minute(5)))
	})
	t.Run("a pod whose end only an event brought", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		l.Note(costPod("a", 1), minute(1))
		l.Note(endedAt(costPod("a", 1), 3), minute(3))
		assert.Equal(t, []cost.Usage{until(of("a", 1), 3)}, l.Usages(job, nil, minute(9)))
	})
	t.Run("a pod that vanished without a word ended when that was seen", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		l.Note(costPod("a", 1), minute(1))
		assert.Equal(t, []cost.Usage{until(of("a", 1), 4)}, l.Usages(job, nil, minute(4)))
		assert.Equal(t, []cost.Usage{until(of("a", 1), 4)}, l.Usages(job, nil, minute(9)), "and not later")
	})
	t.Run("an evicted pod, which has no container that ended", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		evicted := costPod("a", 1)
		evicted.Status.Phase = corev1.PodFailed
		l.Note(evicted, minute(4))
		assert.Equal(t, []cost.Usage{until(of("a", 1), 4)}, l.Usages(job, []*corev1.Pod{evicted}, minute(9)))
	})
	t.Run("what is written is forgotten, what runs or ended later is not", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		l.Note(endedAt(costPod("a", 1), 3), minute(3))
		l.Note(endedAt(costPod("b", 1), 8), minute(8))
		l.Note(costPod("c", 1), minute(1))
		l.Settle(key, written(5), minute(5))
		assert.ElementsMatch(t, []cost.Usage{until(of("b", 1), 8), of("c", 1)}, l.Usages(job, []*corev1.Pod{costPod("c", 1)}, minute(9)))
		l.Settle(key, nil, minute(9))
		l.Forget(key)
		assert.Empty(t, l.Usages(job, nil, minute(9)))
	})
	t.Run("pods of an earlier job of the name, and of others", func(t *testing.T) {
		l := cost.Ledger{Program: &workerProgram}
		l.Note(costPod("a", -1), minute(0))
		stranger := costPod("b", 1)
		stranger.Annotations = nil
		l.Note(stranger, minute(1))
		assert.Empty(t, l.Usages(job, nil, minute(2)))
	})
}

// reader reads a node, or is refused.
type reader struct {
	client.Reader

	node    *corev1.Node
	refuses bool
	reads   int
}

func (r *reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.reads++
	if r.refuses {
		return apierrors.NewForbidden(corev1.Resource("nodes"), key.Name, errors.New("no rule"))
	}
	r.node.DeepCopyInto(into.(*corev1.Node))
	return nil
}

// A price that cannot be read must not keep the training from being followed, and what was used meanwhile is charged later.
func TestAPriceThatCannotBeReadHoldsUpTheCostAlone(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", Annotations: map[string]string{mlv1.AnnotationPricePerHour: "60"}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}
	nodes := &reader{node: node, refuses: true}
	r := &Reconciler{Direct: nodes}
	r.ledger.Program = &workerProgram
	job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	}).Obj()
	look := func(at int, pods ...*corev1.Pod) observed {
		o := observed{job: job, now: minute(at), pods: pods}
		require.NoError(t, r.observeCost(t.Context(), &o))
		return o
	}
	job.Status.Cost = &mlv1.CostStatus{Currency: "USD", Total: "3", PerHour: "60", Time: ptr.To(metav1.NewTime(minute(1)))}

	unread := look(2, endedAt(costPod("a", 1), 2))
	assert.True(t, unread.priceUnread)
	status := job.Status.DeepCopy()
	status.CurrentEpoch++
	unread.chargeCost(status)
	assert.Equal(t, job.Status.Cost, status.Cost, "what is not known is not charged")
	assert.True(t, look(2, endedAt(costPod("a", 1), 2)).priceUnread)
	assert.Equal(t, 1, nodes.reads, "it is not asked for in each reconciliation")

	nodes.refuses = false
	read := look(4)
	assert.False(t, read.priceUnread)
	assert.Equal(t, "4", cost.Charge(job.Status.Cost, read.usages, read.now).Total, "the minute whose price was not known")

	nodes.refuses = true
	assert.False(t, look(20).priceUnread, "the last price stays good")
	assert.Len(t, look(20).usages, 1)
	assert.Equal(t, 3, nodes.reads)
}

// A cost is written with whatever else changes, and alone only when it is old or the last pod has ended.
func TestCostRidesOnOtherChanges(t *testing.T) {
	perHour := func(start, end int) cost.Usage {
		price := cost.PriceOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{mlv1.AnnotationPricePerHour: "60"}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}})
		u := cost.Usage{Start: minute(start), Currency: "USD", PerHour: price.Rate(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")})}
		if end > 0 {
			u.End = minute(end)
		}
		return u
	}
	before := func(total, rate string, at int) *mlv1.CostStatus {
		return &mlv1.CostStatus{Currency: "USD", Total: total, PerHour: rate, Time: ptr.To(metav1.NewTime(minute(at)))}
	}
	for _, test := range []struct {
		name    string
		before  *mlv1.CostStatus
		state   mlv1.State
		usages  []cost.Usage
		now     int
		changes bool // something else
		want    *mlv1.CostStatus
	}{
		{"nothing else changed", before("1", "60", 2), mlv1.StateRunning, []cost.Usage{perHour(1, 0)}, 7, false, before("1", "60", 2)},
		{"something else changed", before("1", "60", 2), mlv1.StateRunning, []cost.Usage{perHour(1, 0)}, 7, true, before("6", "60", 7)},
		{"the last is 10 minutes old", before("1", "60", 2), mlv1.StateRunning, []cost.Usage{perHour(1, 0)}, 12, false, before("11", "60", 12)},
		{"the first, which can wait", nil, mlv1.StateInitializing, []cost.Usage{perHour(1, 0)}, 2, false, nil},
		{"the first, with a change", nil, mlv1.StateRunning, []cost.Usage{perHour(1, 0)}, 2, true, before("1", "60", 2)},
		{"the first, long after", nil, mlv1.StateRunning, []cost.Usage{perHour(1, 0)}, 11, false, before("10", "60", 11)},
		{"the last pod of a failed job has ended", before("1", "60", 2), mlv1.StateFailed, []cost.Usage{perHour(1, 3)}, 4, false, before("2", "0", 4)},
		{"no pod runs, and all is charged", before("1", "0", 2), mlv1.StateSuspended, nil, 30, false, before("1", "0", 2)},
		{"no node has a price", nil, mlv1.StateRunning, []cost.Usage{{Start: minute(1)}}, 30, true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Obj()
			job.Status.Cost, job.Status.State = test.before, test.state
			status := job.Status.DeepCopy()
			if test.changes {
				status.CurrentEpoch++
			}
			o := observed{job: job, now: minute(test.now), usages: test.usages}
			o.chargeCost(status)
			assert.Equal(t, test.want, status.Cost)
		})
	}
}

// A job is charged to the second, although the manager that saw its pods start is not the one that sees them end.
func TestAPIAJobIsChargedForItsPartOfTheNodes(t *testing.T) {
	c := newCluster(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "priced-", Annotations: map[string]string{
		mlv1.AnnotationPricePerHour: "28800", mlv1.AnnotationPriceCurrency: "EUR", // 8 per second
	}}}
	require.NoError(t, c.Create(t.Context(), node))
	t.Cleanup(func() { require.NoError(t, c.Delete(context.WithoutCancel(t.Context()), node)) })
	bare := node.DeepCopy()
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi")}
	require.NoError(t, c.Status().Patch(t.Context(), node, client.MergeFrom(bare)))

	first := c.start(nil)
	job := c.submit(builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	}))
	workers := c.workers(job, 0)
	workers.Spec.Template.Spec.NodeName = node.Name // as the scheduler says it
	pods := c.startPods(workers)
	start := metav1.Now().Rfc3339Copy()
	for _, pod := range pods {
		c.become(pod, corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}, StartTime: &start,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: containerStatus(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
		})
	}
	c.await(job, "charged", func(job *mlv1.TrainingJob) bool { return job.Status.Cost != nil && job.Status.Cost.PerHour == "14400" })
	eventually(t, "time passing", func() bool { return time.Since(start.Time) >= 2*time.Second })
	first.stop()

	end := metav1.Now().Rfc3339Copy()
	for _, pod := range pods {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		status := *pod.Status.DeepCopy()
		status.Phase, status.ContainerStatuses = corev1.PodSucceeded, containerStatus(corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{FinishedAt: end},
		})
		c.become(pod, status)
	}
	c.start(nil)
	done := c.await(job, "Completed", state(mlv1.StateCompleted))

	seconds := int64(end.Sub(start.Time) / time.Second)
	assert.Equal(t, strconv.FormatInt(2*2*seconds, 10), done.Status.Cost.Total, "two workers for %d s at 2 each second", seconds)
	assert.Equal(t, "EUR", done.Status.Cost.Currency)
	assert.Equal(t, "0", done.Status.Cost.PerHour)
}
