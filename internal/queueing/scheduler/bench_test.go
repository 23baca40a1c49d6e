package scheduler_test

import (
	"fmt"
	"math/rand"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/budget"
)

// large is a cluster of 5,000 nodes of 8 GPUs with 50,000 running pods, and 10,000 jobs that wait, in 30 queues of 5 cohorts.
// Of each node so many GPUs are in use.
func large(used int64, preempts bool) scheduler.Snapshot {
	random := rand.New(rand.NewSource(1))
	s := scheduler.Snapshot{Now: noon}
	for i := range 5000 {
		n := node(fmt.Sprintf("node-%04d", i), 8).label("zone", fmt.Sprint(i%10)).label("pool", fmt.Sprint(i%4))
		s.Nodes = append(s.Nodes, scheduler.Node(n))
	}
	for i := range 30 {
		q := queue(fmt.Sprintf("queue-%d", i)).gpus(2000).cohort(fmt.Sprintf("cohort-%d", i%5)).
			algorithm([]aiplatformv1alpha1.QueueAlgorithm{"priority", "fifo", "fair-share"}[i%3])
		if preempts {
			q = q.preempts()
		}
		q.Spec.UserLimits = &aiplatformv1alpha1.TenantLimits{ResourceLimits: gpusOf(1000)}
		s.Queues = append(s.Queues, q.build())
	}
	requests := []scheduler.Resources{{MilliCPU: 1000, Memory: 4 << 30, GPUs: 1}, {MilliCPU: 500, Memory: 2 << 30}}
	for i := range 50000 {
		at := fmt.Sprintf("node-%04d", i%5000)
		r := requests[1]
		if int64(i/5000) < used {
			r = requests[0]
		}
		j := job(fmt.Sprintf("running-%d", i)).needs(r).runs(at).queue(fmt.Sprintf("queue-%d", i%30)).priority(int32(random.Intn(5)*10)).
			in(fmt.Sprintf("team-%d", i%20), fmt.Sprintf("user-%d", i%100)).since(time.Duration(random.Intn(10000)) * time.Second)
		s.Running = append(s.Running, scheduler.Job(j))
	}
	sizes := []int64{1, 2, 4, 8}
	for i := range 10000 {
		j := job(fmt.Sprintf("pending-%d", i)).queue(fmt.Sprintf("queue-%d", i%30)).priority(int32(random.Intn(10)*10)).
			in(fmt.Sprintf("team-%d", i%20), fmt.Sprintf("user-%d", i%100)).waits(time.Duration(random.Intn(3600)) * time.Second).
			needs(scheduler.Resources{MilliCPU: int64(500 + 500*random.Intn(8)), Memory: 4 << 30, GPUs: sizes[random.Intn(4)]}).
			members([]int{1, 1, 1, 2, 4, 16}[random.Intn(6)])
		if i%4 == 0 {
			j = j.selector("pool", fmt.Sprint(i%16/4))
		}
		if i%50 == 0 {
			j = j.topology("zone")
		}
		j.UID = types.UID(fmt.Sprintf("pending-%d", i))
		s.Pending = append(s.Pending, scheduler.Job(j))
	}
	return s
}

func BenchmarkCycle(b *testing.B) {
	for name, s := range map[string]scheduler.Snapshot{
		"half free":            large(4, false),
		"full":                 large(8, false),
		"nearly full":          large(7, false),
		"full with preemption": large(8, true),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var d scheduler.Decisions
			before := processorTime(b)
			for b.Loop() {
				d = scheduler.Schedule(s)
			}
			b.ReportMetric(float64(len(d.Admitted)), "admitted")
			b.ReportMetric(float64(len(d.Preempted)), "preempted")
			b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// processorTime that the process has had, garbage collection included: what a cycle takes on a machine with nothing else to do.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestBudgetOfACycle(t *testing.T) {
	s := large(7, true)
	objects, bytes := budget.Allocations(3, func() { scheduler.Schedule(s) })
	budget.Check(t, "scheduler.cycle.allocations", objects)
	budget.Check(t, "scheduler.cycle.bytes", bytes)
}
