package workerpool

import (
	"time"

	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Figures are a queue's tasks for pooled workers.
type Figures struct {
	// Waiting for a worker, and Running on one.
	Waiting, Running int32
}

// limits of a pool, with the defaults of the API.
type limits struct {
	least, most, tasksPerWorker int32
	idle                        time.Duration
}

func limitsOf(pool *aiplatformv1alpha1.WorkerPool) limits {
	l := limits{
		least: ptr.Deref(pool.MinReplicas, 0), most: ptr.Deref(pool.MaxReplicas, 10),
		tasksPerWorker: max(1, ptr.Deref(pool.TasksPerWorker, 10)),
		idle:           time.Duration(ptr.Deref(pool.IdleSeconds, 60)) * time.Second,
	}
	l.most = max(l.most, l.least) // a minimum above the default of the maximum
	return l
}

// needed is the number of workers for the tasks that there are.
func (l limits) needed(f Figures) int32 {
	tasks := int64(f.Waiting) + int64(f.Running)
	perWorker := int64(l.tasksPerWorker)
	workers := (tasks + perWorker - 1) / perWorker
	return int32(min(max(workers, int64(l.least)), int64(l.most))) //nolint:gosec // at most most
}

// within is a number of workers that is already there, within the limits of now.
func (l limits) within(replicas int32) int32 { return min(max(replicas, l.least), l.most) }

// scaling is a number of workers, and what is known of the time in which fewer would have done.
type scaling struct {
	replicas int32
	// fewerSince is when it was first seen that fewer would do; zero: they would not.
	fewerSince time.Time
	// fewer is the highest number that was needed since then.
	fewer int32
}

// next goes up at once, and down to what was needed at most in the last time of idleness, but not while a task runs: nothing says
// which worker has it, and Kubernetes may take that one away. again is when to look next although no figure changes; 0: never.
func (s scaling) next(l limits, f Figures, now time.Time) (next scaling, again time.Duration) {
	next = s
	next.replicas = l.within(s.replicas)
	needed := l.needed(f)
	if needed >= next.replicas {
		return scaling{replicas: needed}, 0
	}
	if next.fewerSince.IsZero() {
		next.fewerSince, next.fewer = now, needed
	}
	next.fewer = max(next.fewer, needed)
	if left := l.idle - now.Sub(next.fewerSince); left > 0 {
		return next, left
	}
	if f.Running > 0 {
		return next, 0 // once none runs a figure has changed
	}
	if target := l.within(next.fewer); target < next.replicas {
		next = scaling{replicas: target}
		if needed < target {
			next.fewerSince, next.fewer = now, needed
			return next, max(l.idle, time.Second)
		}
	}
	return next, 0
}

// unknown keeps the number of workers while the number of tasks is not known.
func (s scaling) unknown(l limits) scaling { return scaling{replicas: l.within(s.replicas)} }
