package level4

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/suite"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/training"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

const eventsTest = "level4-events"

func events() suite.Test {
	return suite.Test{
		Name:     eventsTest,
		Suite:    Suite,
		Question: "Does an event tell of every transition of a TrainingJob: when it completes, when it is suspended, when it fails?",
		Patience: training.Patience,
		Run: func(ctx context.Context, l *lab.Lab) error {
			return errors.Join(completes.isTold(ctx, l), suspends.isTold(ctx, l), fails.isTold(ctx, l))
		},
	}
}

// story is a job that comes to an end, and the events that tell of it.
type story struct {
	name  string
	make  func(*mlv1.TrainingJob)
	end   mlv1.State
	tells []told
}

// told is an event: what it is called, and its type.
type told struct{ reason, kind string }

var (
	completes = story{
		name: "completes", make: func(*mlv1.TrainingJob) {}, end: mlv1.StateCompleted,
		tells: []told{
			{"Initializing", corev1.EventTypeNormal}, {"Running", corev1.EventTypeNormal},
			{"CheckpointSaved", corev1.EventTypeNormal}, {"Completed", corev1.EventTypeNormal},
		},
	}
	suspends = story{
		name: "suspends", make: func(job *mlv1.TrainingJob) { job.Spec.Suspend = ptr.To(true) }, end: mlv1.StateSuspended,
		tells: []told{{"Suspended", corev1.EventTypeNormal}},
	}
	// The worker knows no such data set and says so with an exit code after which there is no restart.
	fails = story{
		name: "fails", make: func(job *mlv1.TrainingJob) { job.Spec.Dataset = "no-such-dataset" }, end: mlv1.StateFailed,
		tells: []told{{"Initializing", corev1.EventTypeNormal}, {"Failed", corev1.EventTypeWarning}},
	}
)

func (s story) isTold(ctx context.Context, l *lab.Lab) error {
	job, err := training.Example(l, s.name)
	if err != nil {
		return err
	}
	s.make(job)
	if err := training.Start(ctx, l, eventsTest, job); err != nil {
		return err
	}
	if _, err := training.Reach(ctx, l, job, "is "+string(s.end), training.In(s.end)); err != nil {
		return err
	}
	// Events are sent in the background, and may be a moment behind the status.
	soon, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var heard []told
	err = l.Until(soon, "the events of TrainingJob "+job.Name+" are there", func(ctx context.Context) (bool, error) {
		now, err := eventsOf(ctx, l, job)
		heard = now
		return len(s.missing(now)) == 0, err
	})
	l.Logf("TrainingJob %s: events %v", job.Name, heard)
	if missing := s.missing(heard); err != nil && len(missing) > 0 {
		return verdict.Failf("TrainingJob %s is %s without the events %v; it has %v", job.Name, s.end, missing, heard)
	}
	return err
}

// missing are the events that were not heard.
func (s story) missing(heard []told) []told {
	return slices.DeleteFunc(slices.Clone(s.tells), func(want told) bool { return slices.Contains(heard, want) })
}

func eventsOf(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob) ([]told, error) {
	var list eventsv1.EventList
	if err := l.List(ctx, &list, client.InNamespace(job.Namespace)); err != nil {
		return nil, fmt.Errorf("list the events in namespace %s: %w", job.Namespace, err)
	}
	var heard []told
	for _, event := range list.Items {
		if event.Regarding.UID == job.UID {
			heard = append(heard, told{event.Reason, event.Type})
		}
	}
	return heard, nil
}
