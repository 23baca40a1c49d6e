package attacks_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const platformGroup = "aiplatform.example.com"

// hidden is what a user did while the webhooks were away.
type hidden struct {
	user client.Client
	team string
	jobs []*aiplatformv1alpha1.AIJob
}

// queue makes an AIJobQueue, and a node for its jobs alone.
func (c *cluster) queue(name string, edit func(*aiplatformv1alpha1.AIJobQueueSpec)) {
	c.t.Helper()
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	edit(&queue.Spec)
	c.create(queue)
	c.node("", map[string]string{"queue": name})
}

// queued is a job of a queue, for one GPU.
func queued(namespace, name, queue string) *builders.AIJobBuilder {
	return builders.AIJob(name).Namespace(namespace).Queue(queue).GPUs(1).Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"queue": aiplatformv1alpha1.LabelValue(queue)}
	})
}

// awaitJob waits until an AIJob is in a phase, for a reason; empty: for any.
func (c *cluster) awaitJob(job *aiplatformv1alpha1.AIJob, phase aiplatformv1alpha1.AIJobPhase, reason string) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s being %s for %q", job.Name, phase, reason), func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return false, err
		}
		if job.Status.Phase != phase || reason != "" && job.Status.Reason != reason {
			return false, fmt.Errorf("it is %s for %s: %s", job.Status.Phase, job.Status.Reason, job.Status.Message)
		}
		return true, nil
	})
}

// prepareWithoutWebhooks has a user create jobs before any manager runs: the API server calls its webhooks without success, and none says
// whose they are.
func (c *cluster) prepareWithoutWebhooks() hidden {
	c.t.Helper()
	h := hidden{team: c.namespace(nil), user: c.as("alice")}
	c.bind(h.team, "edit", "alice")
	c.awaitRight("alice", "create", platformGroup, "aijobs", h.team)
	c.queue("per-user", func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.UserLimits = &aiplatformv1alpha1.TenantLimits{MaxConcurrency: ptr.To[int32](1)}
	})
	for _, name := range []string{"one", "two"} {
		job := queued(h.team, name, "per-user").ToCreate()
		require.NoError(c.t, h.user.Create(c.t.Context(), job))
		assert.Empty(c.t, job.Annotations[aiplatformv1alpha1.AnnotationUser])
		h.jobs = append(h.jobs, job)
	}
	return h
}

// forgesAUser is attack 10 while no webhook says whose a job is.
func (c *cluster) forgesAUser() {
	c.t.Helper()
	c.refusedByPolicy("a forged user", "names bob, but the job is created by alice", func() error {
		return c.waiting.user.Create(c.t.Context(), forged(c.waiting.team), client.DryRunAll)
	})
}

func forged(team string) *aiplatformv1alpha1.AIJob {
	return queued(team, "forged", "per-user").Annotation(aiplatformv1alpha1.AnnotationUser, "bob").ToCreate()
}

// hidesItsUser is the rest of attack 10, with the webhooks back.
func hidesItsUser(c *cluster) {
	admitted, held := c.waiting.jobs[0], c.waiting.jobs[1]
	c.await("one of two jobs without a user being admitted", func(ctx context.Context) (bool, error) {
		for i, job := range c.waiting.jobs {
			if err := c.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
				return false, err
			}
			if len(job.Status.Assignments) > 0 {
				admitted, held = job, c.waiting.jobs[1-i]
				return true, nil
			}
		}
		return false, nil
	})
	c.awaitJob(held, aiplatformv1alpha1.AIJobQueued, reasons.QuotaReached)
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(admitted), admitted))
	assert.NotEmpty(c.t, admitted.Status.Assignments)

	c.await("the webhooks telling whose a job is", func(ctx context.Context) (bool, error) {
		job := queued(c.waiting.team, "told", "per-user").ToCreate()
		err := c.waiting.user.Create(ctx, job, client.DryRunAll)
		return job.Annotations[aiplatformv1alpha1.AnnotationUser] == "alice", err
	})
	job := forged(c.waiting.team)
	require.NoError(c.t, c.waiting.user.Create(c.t.Context(), job, client.DryRunAll))
	assert.Equal(c.t, "alice", job.Annotations[aiplatformv1alpha1.AnnotationUser])
}

// jumpsTheQueue is attack 11.
func jumpsTheQueue(c *cluster) {
	team, others := c.namespace(map[string]string{"team": "x"}), c.namespace(nil)
	c.queue("of-x", func(s *aiplatformv1alpha1.AIJobQueueSpec) {
		s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
		s.MaxPriority, s.PreemptionPolicy = ptr.To[int32](60), aiplatformv1alpha1.PreemptLowerPriority
	})
	low := queued(team, "low", "of-x").GPUs(2).Priority(10).ToCreate()
	c.create(low)
	c.awaitJob(low, aiplatformv1alpha1.AIJobScheduled, "")
	foreign, urgent := queued(others, "foreign", "of-x").Priority(60).ToCreate(), queued(team, "urgent", "of-x").Priority(61).ToCreate()
	c.create(foreign)
	c.create(urgent)
	c.awaitJob(foreign, aiplatformv1alpha1.AIJobQueued, reasons.NamespaceNotSelected)
	c.awaitJob(urgent, aiplatformv1alpha1.AIJobQueued, reasons.PriorityTooHigh)
	c.awaitJob(low, aiplatformv1alpha1.AIJobScheduled, "")

	// That what waits is not held back by something else.
	allowed := queued(team, "allowed", "of-x").Priority(60).ToCreate()
	c.create(allowed)
	c.awaitJob(allowed, aiplatformv1alpha1.AIJobScheduled, "")
}
