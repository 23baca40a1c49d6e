package queueing

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
	"github.com/dcnlab/spot-training-operator/test/harness/budget"
)

// large is a model of 5,000 nodes with 50,000 pods, half of them of 2,500 jobs, and of 10,000 jobs that wait.
func large() *model {
	m := newModel()
	setNodes(m, 5000)
	setPods(m, 50000)
	for j := range 2500 {
		var nodes []string
		for p := range 10 {
			nodes = append(nodes, fmt.Sprintf("node-%d", (20*j+2*p)%5000))
		}
		m.setJob(aiJobs, gang(fmt.Sprintf("job-%d", j), 10, nodes...), Holding, "1")
	}
	setWaiting(m, 10000)
	return m
}

func setNodes(m *model, many int) {
	for n := range many {
		node := anyNode(fmt.Sprintf("node-%d", n), 16)
		node.Labels = map[string]string{"zone": fmt.Sprint(n % 3)}
		m.setNode(node)
	}
}

func setPods(m *model, many int) {
	for p := range many {
		job := ""
		if p%2 == 0 {
			job = fmt.Sprintf("job-%d", p/20)
		}
		full := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("pod-%d", p), Namespace: "team", UID: types.UID(fmt.Sprintf("7f6c0a9e-0000-4000-8000-%012d", p)), ResourceVersion: fmt.Sprint(p),
			},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", p%5000), Containers: []corev1.Container{{
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")}},
			}}},
		}
		bare, _ := barePod(full)
		is := bare.(*pod)
		if job != "" {
			is.job = jobName{"AIJob", "team", job}
		}
		m.setPod(is)
	}
}

func setWaiting(m *model, many int) {
	for j := range many {
		m.setJob(aiJobs, gang(fmt.Sprintf("waits-%d", j), 1+j%8), Waiting, "1")
	}
}

func TestBudgetOfTheModel(t *testing.T) {
	m := newModel()
	setNodes(m, 5000)
	budget.Check(t, "queueing.pod", budget.Heap(func() any { setPods(m, 20000); return m })/20000)
	budget.Check(t, "queueing.job", budget.Heap(func() any { setWaiting(m, 5000); return m })/5000)
}

func BenchmarkSnapshot(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m := large()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
	for b.Loop() {
		m.snapshot(noon)
	}
}

func BenchmarkCycle(b *testing.B) {
	m := large()
	for b.Loop() {
		s, seen := m.snapshot(noon), m.seen()
		d := scheduler.Schedule(s)
		d.Admitted, d.Preempted = nil, nil // each cycle sees the same
		m.take(d, seen, noon)
	}
}
