package scheduler_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// A job that its queue does not allow gets no place, takes none from others, and keeps no room from those that come after it.
func TestAQueueIsABoundary(t *testing.T) {
	q := queue("q").preempts()
	low := job("low").queue("q").priority(10).runs("a")
	invalid := q
	invalid.Spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: "Like"}}}
	unlike := q
	unlike.Spec.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"y"}},
	}}
	for name, c := range map[string]struct {
		queue  queueBuilder
		reason string // empty: the job is allowed
	}{
		"without a selector":              {q, ""},
		"of the namespace":                {q.selects("team", "x"), ""},
		"of another namespace":            {q.selects("team", "y"), reasons.NamespaceNotSelected},
		"of a selector that is not valid": {invalid, reasons.NamespaceNotSelected},
		"of all but another":              {unlike, ""},
		"up to the priority":              {q.maxPriority(90), ""},
		"below the priority":              {q.maxPriority(89), reasons.PriorityTooHigh},
	} {
		t.Run(name, func(t *testing.T) {
			high := job("high").queue("q").priority(90)
			full := nodes(node("a", 1)).namespace("n", "team", "x").queues(c.queue).running(low).pending(high).schedule()
			free := nodes(node("a", 1)).namespace("n", "team", "x").queues(c.queue).pending(high, job("other").needs(cpus(1)).gpus(1)).schedule()
			if c.reason == "" {
				assert.Equal(t, []string{"low"}, full.preempted())
				assert.Equal(t, []string{"high"}, free.admitted())
				return
			}
			assert.Empty(t, full.preempted())
			assert.Equal(t, c.reason, full.wait("high").Reason)
			assert.Equal(t, []string{"other"}, free.admitted())
		})
	}
	t.Run("to a namespace that is not known", func(t *testing.T) {
		assert.Empty(t, nodes(node("a", 1)).queues(unlike).pending(job("j").queue("q")).schedule().admitted())
	})
	t.Run("to a priority that was raised while the job runs", func(t *testing.T) {
		o := nodes(node("a", 1)).queues(q.maxPriority(50)).running(low.priority(100)).pending(job("j").queue("q").priority(50)).schedule()
		assert.Empty(t, o.preempted(), "it counts as the highest that the queue allows")
		o = nodes(node("a", 1)).queues(q.maxPriority(50), queue("p").preempts()).running(low.priority(100)).pending(job("j").queue("p").priority(80)).schedule()
		assert.Equal(t, []string{"low"}, o.preempted())
	})
	t.Run("to none that run", func(t *testing.T) {
		o := nodes(node("a", 1)).queues(q.selects("team", "y")).running(low).schedule()
		assert.Empty(t, o.preempted())
	})
}

func TestAQueueCanBeRequired(t *testing.T) {
	o := nodes(node("a", 2)).queues(queue("q")).requireQueue().pending(job("without"), job("with").queue("q")).schedule()
	assert.Equal(t, []string{"with"}, o.admitted())
	assert.Equal(t, reasons.QueueRequired, o.wait("without").Reason)
}

// Jobs whose user is not known share one limit, so that a job without a user gets no more than one with a user.
func TestUnknownUsersShareALimit(t *testing.T) {
	o := nodes(node("a", 9)).queues(queue("q").perUser(1)).running(job("r").in("m", "").queue("q").runs("a")).
		pending(job("hidden").in("n", "").queue("q"), job("told").in("n", "u").queue("q")).schedule()
	assert.Equal(t, []string{"told"}, o.admitted())
	assert.Equal(t, reasons.QuotaReached, o.wait("hidden").Reason)
}
