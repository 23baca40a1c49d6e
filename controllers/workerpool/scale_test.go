package workerpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func pool(least, most, perWorker, idle int32) *aiplatformv1alpha1.WorkerPool {
	return &aiplatformv1alpha1.WorkerPool{
		MinReplicas: ptr.To(least), MaxReplicas: ptr.To(most), TasksPerWorker: ptr.To(perWorker), IdleSeconds: ptr.To(idle),
	}
}

func TestNeeded(t *testing.T) {
	for name, test := range map[string]struct {
		pool    *aiplatformv1alpha1.WorkerPool
		figures Figures
		want    int32
	}{
		"nothing to do":                         {pool(0, 10, 10, 60), Figures{}, 0},
		"the least stays":                       {pool(2, 10, 10, 60), Figures{}, 2},
		"one task wants one":                    {pool(0, 10, 10, 60), Figures{Waiting: 1}, 1},
		"a full worker":                         {pool(0, 10, 10, 60), Figures{Waiting: 10}, 1},
		"one more":                              {pool(0, 10, 10, 60), Figures{Waiting: 11}, 2},
		"tasks that run count":                  {pool(0, 10, 10, 60), Figures{Waiting: 5, Running: 6}, 2},
		"no more than the most":                 {pool(0, 10, 10, 60), Figures{Waiting: 100_000}, 10},
		"figures near what a number holds":      {pool(0, 1000, 1, 60), Figures{Waiting: 2_000_000_000, Running: 2_000_000_000}, 1000},
		"the defaults":                          {&aiplatformv1alpha1.WorkerPool{}, Figures{Waiting: 11}, 2},
		"a least above the default of the most": {&aiplatformv1alpha1.WorkerPool{MinReplicas: ptr.To[int32](20)}, Figures{}, 20},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, limitsOf(test.pool).needed(test.figures)) })
	}
}

// A story is what the job service says, second by second, and how many workers there then are.
func TestWorkersGoUpAtOnceAndDownWhenTheyWereIdle(t *testing.T) {
	type step struct {
		at               int
		waiting, running int32
		want             int32
	}
	for name, test := range map[string]struct {
		pool  *aiplatformv1alpha1.WorkerPool
		steps []step
	}{
		"from none, up, and back to none": {pool(0, 10, 1, 60), []step{
			{0, 0, 0, 0}, {1, 3, 0, 3}, {2, 5, 3, 8}, {10, 0, 0, 8}, {69, 0, 0, 8}, {70, 0, 0, 0},
		}},
		"what comes meanwhile restarts the time": {pool(0, 10, 1, 60), []step{
			{0, 4, 0, 4}, {10, 0, 0, 4}, {50, 4, 0, 4}, {70, 0, 0, 4}, {129, 0, 0, 4}, {130, 0, 0, 0},
		}},
		"down to what was needed at most": {pool(0, 10, 1, 60), []step{
			{0, 8, 0, 8}, {10, 2, 0, 8}, {40, 3, 0, 8}, {60, 0, 0, 8}, {70, 0, 0, 3}, {129, 0, 0, 3}, {130, 0, 0, 0},
		}},
		"none goes while a task runs": {pool(0, 10, 10, 30), []step{
			{0, 30, 0, 3}, {10, 0, 3, 3}, {40, 0, 3, 3}, {41, 0, 2, 3}, {80, 0, 1, 3}, {120, 0, 0, 1}, {149, 0, 0, 1}, {150, 0, 0, 0},
		}},
		"not even one of many":               {pool(0, 10, 1, 10), []step{{0, 8, 0, 8}, {10, 0, 1, 8}, {600, 0, 1, 8}, {601, 0, 0, 1}, {611, 0, 0, 0}}},
		"more are started while tasks run":   {pool(0, 10, 1, 10), []step{{0, 1, 0, 1}, {10, 0, 1, 1}, {600, 1, 1, 2}}},
		"at once without a time of idleness": {pool(1, 10, 1, 0), []step{{0, 5, 0, 5}, {1, 0, 0, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			var s scaling
			for _, step := range test.steps {
				now := noon.Add(time.Duration(step.at) * time.Second)
				s, _ = s.next(limitsOf(test.pool), Figures{Waiting: step.waiting, Running: step.running}, now)
				assert.Equal(t, step.want, s.replicas, "second %d", step.at)
			}
		})
	}
}

func TestANewLimitHoldsAtOnce(t *testing.T) {
	s, _ := scaling{}.next(limitsOf(pool(0, 10, 1, 60)), Figures{Waiting: 10}, noon)
	s, _ = s.next(limitsOf(pool(0, 4, 1, 60)), Figures{Waiting: 10}, noon)
	assert.EqualValues(t, 4, s.replicas)
	s, _ = s.next(limitsOf(pool(6, 10, 1, 60)), Figures{}, noon)
	assert.EqualValues(t, 6, s.replicas)
	assert.EqualValues(t, 2, s.unknown(limitsOf(pool(0, 2, 1, 60))).replicas)
	s, _ = s.next(limitsOf(pool(0, 3, 1, 60)), Figures{Running: 6}, noon)
	assert.EqualValues(t, 3, s.replicas, "a lower limit holds for busy workers, too")
}

// Whatever the job service says: never outside the limits, never fewer than needed, none taken away while a task runs, and none in
// the end, by itself.
func TestScalingProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.Int32Range(0, 5).Draw(t, "least")
		l := limitsOf(pool(least, least+rapid.Int32Range(1, 20).Draw(t, "more"), rapid.Int32Range(1, 20).Draw(t, "perWorker"),
			rapid.Int32Range(0, 100).Draw(t, "idle")))
		s, now := scaling{}, noon
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			f := Figures{Waiting: rapid.Int32Range(0, 200).Draw(t, "waiting"), Running: rapid.Int32Range(0, 30).Draw(t, "running")}
			before := s.replicas
			s, _ = s.next(l, f, now)
			assert.GreaterOrEqual(t, s.replicas, l.needed(f))
			assert.LessOrEqual(t, s.replicas, l.most)
			if f.Running > 0 {
				assert.GreaterOrEqual(t, s.replicas, before, "a worker with a task may have gone")
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
		}
		for range 10 {
			var again time.Duration
			if s, again = s.next(l, Figures{}, now); again == 0 {
				break
			}
			now = now.Add(again)
		}
		assert.Equal(t, l.least, s.replicas, "looking again when asked to is enough to end idle")
	})
}
