package checks

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func transitionsHaveEvents(env *cluster.Env) { each(env, scenarios, scenario.check) }

// scenario is a job that reaches a state, and the events that must report it.
type scenario struct {
	name   string
	change func(*mlv1.TrainingJob)
	end    mlv1.State
	events []event
}

type event struct{ reason, kind string }

var scenarios = []scenario{
	{
		name: "completes", change: func(*mlv1.TrainingJob) {}, end: mlv1.StateCompleted,
		events: []event{
			{reasons.EventInitializing, corev1.EventTypeNormal}, {reasons.EventRunning, corev1.EventTypeNormal},
			{reasons.EventCheckpointSaved, corev1.EventTypeNormal}, {reasons.EventCompleted, corev1.EventTypeNormal},
		},
	},
	{
		name: "suspends", change: suspend, end: mlv1.StateSuspended,
		events: []event{{reasons.EventSuspended, corev1.EventTypeNormal}},
	},
	// The worker does not know the data set and exits with a code that allows no restart.
	{
		name: "fails", change: func(job *mlv1.TrainingJob) { job.Spec.Dataset = "no-such-dataset" }, end: mlv1.StateFailed,
		events: []event{{reasons.EventInitializing, corev1.EventTypeNormal}, {reasons.EventFailed, corev1.EventTypeWarning}},
	},
}

func (s scenario) check(env *cluster.Env) {
	job := startJob(env, s.name, s.change)
	reachState(env, job, s.end)
	// Events are sent in the background, and may be a moment behind the status.
	soon, cancel := context.WithTimeout(env.Context, 20*time.Second)
	defer cancel()
	var found []event
	err := env.Until(soon, "the events of TrainingJob "+job.Name+" are there", func(ctx context.Context) (bool, error) {
		now, err := eventsOf(ctx, env, job)
		found = now
		return len(s.missing(now)) == 0, err
	})
	env.Logf("TrainingJob %s: events %v", job.Name, found)
	if missing := s.missing(found); err != nil && len(missing) > 0 {
		env.Failf("TrainingJob %s is %s without the events %v; it has %v", job.Name, s.end, missing, found)
	}
	env.Check(err)
}

func (s scenario) missing(found []event) []event {
	return slices.DeleteFunc(slices.Clone(s.events), func(want event) bool { return slices.Contains(found, want) })
}

func eventsOf(ctx context.Context, env *cluster.Env, job *mlv1.TrainingJob) ([]event, error) {
	var list eventsv1.EventList
	if err := env.List(ctx, &list, client.InNamespace(job.Namespace)); err != nil {
		return nil, fmt.Errorf("list the events in namespace %s: %w", job.Namespace, err)
	}
	var found []event
	for _, item := range list.Items {
		if item.Regarding.UID == job.UID {
			found = append(found, event{item.Reason, item.Type})
		}
	}
	return found, nil
}
