// Package baseline is the scenario by which Kueue measures its scheduler: queues in cohorts that lend one another what they leave
// unused, and three classes of jobs that come at a steady pace. internal/queueing/scheduler runs it on a clock of its own, test/bench/performance
// against a real API server.
package baseline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// The queues. What a queue may hold is counted in units, whatever those are.
const (
	Cohorts = 5
	// Queues of each cohort.
	Queues = 6
	// Quota of each queue.
	Quota = 20
	// Borrowing is what each may borrow beyond that from its cohort.
	Borrowing = 100
)

// AtLeast is how long all jobs need when every unit is used all the time.
const AtLeast = 66 * time.Second

// Threshold is the time in which Kueue demands of itself that all jobs end, on its own machines.
const Threshold = 425 * time.Second

// Class of jobs: so many in each queue, one every interval, each running for a while.
type Class struct {
	Name string
	// Count of the jobs in each queue.
	Count int
	// Units that each holds.
	Units       int64
	Runs, Every time.Duration
	// Priority is half of Kueue's: AIJobs have one of at most 100.
	Priority int32
	// Threshold is the mean time to admission that Kueue demands of itself at most, on its own machines.
	Threshold time.Duration
}

// Classes are the classes, the lowest priority first.
func Classes() []*Class {
	return []*Class{
		{Name: "small", Count: 350, Units: 1, Runs: 200 * time.Millisecond, Every: 100 * time.Millisecond, Priority: 25, Threshold: 260 * time.Second},
		{Name: "medium", Count: 100, Units: 5, Runs: 500 * time.Millisecond, Every: 500 * time.Millisecond, Priority: 50, Threshold: 90 * time.Second},
		{Name: "large", Count: 50, Units: 20, Runs: time.Second, Every: 1200 * time.Millisecond, Priority: 100, Threshold: 23 * time.Second},
	}
}

// Job of the scenario.
type Job struct {
	// Name tells it from the others; Queue has a name as well.
	Name, Queue string
	Cohort      int
	Class       *Class
	// After is when it comes, from the start.
	After time.Duration
}

// Cohort is the name of a cohort.
func Cohort(cohort int) string { return fmt.Sprintf("c%d", cohort) }

// Queue is the name of a queue of a cohort.
func Queue(cohort, queue int) string { return fmt.Sprintf("c%d-q%d", cohort, queue) }

// Jobs are those of so many cohorts, in the order in which they come. With a scale below 1 there are fewer of each class, which
// come at the same pace.
func Jobs(cohorts int, classes []*Class, scale float64) []Job {
	var jobs []Job
	for c := range cohorts {
		for q := range Queues {
			for _, class := range classes {
				for i := range int(math.Ceil(float64(class.Count) * scale)) {
					jobs = append(jobs, Job{
						Name:  fmt.Sprintf("%s-%s-%d", Queue(c, q), class.Name, i),
						Queue: Queue(c, q), Cohort: c, Class: class, After: time.Duration(i) * class.Every,
					})
				}
			}
		}
	}
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.After, b.After) })
	return jobs
}
