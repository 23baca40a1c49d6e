package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// scale is what was measured with a number of jobs created at once.
type scale struct {
	jobs, workers int
	bare          []time.Duration
	training      []load
	scraped       load
}

// load is what one round with TrainingJobs took.
type load struct {
	// pods is the time until all pods existed, running that until all jobs were Running.
	pods, running time.Duration
	// start is the manager's processor time until all jobs were Running and it rested, life that until all were Completed.
	start, life time.Duration
	// memory is the most that the manager had resident, in bytes, until all jobs ran and until all were Completed.
	memoryStart, memory int64
}

// measureScale measures bare Jobs and TrainingJobs in turn, each in a cluster of its own, and at last TrainingJobs whose
// workers report figures.
func measureScale(ctx context.Context, s settings, jobs int) (scale, error) {
	measured := scale{jobs: jobs, workers: s.workers}
	for round := 1; round <= s.rounds; round++ {
		took, err := measureBare(ctx, s, jobs)
		if err != nil {
			return measured, fmt.Errorf("bare Jobs: %w", err)
		}
		measured.bare = append(measured.bare, took)
		say("round %d: all pods of %d bare Jobs after %.2f s", round, jobs, took.Seconds())

		l, err := measureTraining(ctx, s, jobs, false)
		if err != nil {
			return measured, fmt.Errorf("TrainingJobs: %w", err)
		}
		measured.training = append(measured.training, l)
		say("round %d: %s", round, l.in(jobs))
	}
	l, err := measureTraining(ctx, s, jobs, true)
	if err != nil {
		return measured, fmt.Errorf("TrainingJobs that report figures: %w", err)
	}
	measured.scraped = l
	say("with figures: %s", l.in(jobs))
	return measured, nil
}

func (l load) in(jobs int) string {
	return fmt.Sprintf("all pods of %d TrainingJobs after %.2f s, all Running after %.1f s; manager %.1f ms per job until then, %.1f ms until Completed; %d MB, %d MB",
		jobs, l.pods.Seconds(), l.running.Seconds(), perJob(l.start, jobs), perJob(l.life, jobs), l.memoryStart>>20, l.memory>>20)
}

// perJob is a time divided by the number of jobs, in milliseconds.
func perJob(all time.Duration, jobs int) float64 { return all.Seconds() * 1000 / float64(jobs) }

func measureBare(ctx context.Context, s settings, jobs int) (time.Duration, error) {
	c, err := startCluster(ctx, s, clusterOptions{policy: true, pods: podLife{lasting: true}})
	defer c.stop()
	if err != nil {
		return 0, err
	}
	// The manager runs its first jobs, so that the cluster has done the same before as in the other rounds, and a Job of
	// theirs serves as the pattern.
	m, err := c.startManager(ctx)
	if err != nil {
		return 0, err
	}
	m.stop()
	var patterns batchv1.JobList
	if err := c.client.List(ctx, &patterns, client.InNamespace(warmUp), client.Limit(1)); err != nil {
		return 0, err
	}
	if len(patterns.Items) == 0 {
		return 0, errors.New("the manager made no Job")
	}
	var objects []client.Object
	for i := range jobs {
		objects = append(objects, bareJob(&patterns.Items[0], jobName(i)))
	}
	return c.createAndAwaitPods(ctx, objects, jobs*s.workers)
}

func measureTraining(ctx context.Context, s settings, jobs int, figures bool) (load, error) {
	var l load
	c, err := startCluster(ctx, s, clusterOptions{policy: true, pods: podLife{lasting: true, loopback: figures}})
	defer c.stop()
	if err != nil {
		return l, err
	}
	m, err := c.startManager(ctx)
	if err != nil {
		return l, err
	}
	defer m.stop()
	w, err := startWorker(1)
	if err != nil {
		return l, err
	}
	defer w.stop()
	var objects []client.Object
	for i := range jobs {
		job := trainingJob(namespace, jobName(i), s.workers)
		if figures {
			job.Spec.Monitoring = mlv1.Monitoring{MetricsPort: int32(w.port)}
		}
		objects = append(objects, job)
	}
	before, err := m.settle(ctx)
	if err != nil {
		return l, err
	}

	start := time.Now()
	if l.pods, err = c.createAndAwaitPods(ctx, objects, jobs*s.workers); err != nil {
		return l, err
	}
	if err := m.awaitState(ctx, mlv1.StateRunning, jobs); err != nil {
		return l, err
	}
	l.running = time.Since(start)
	used, err := m.settle(ctx)
	if err != nil {
		return l, err
	}
	l.start = used - before
	if l.memoryStart, err = m.peakMemory(); err != nil {
		return l, err
	}

	if err := c.change(ctx, podLife{loopback: figures}); err != nil {
		return l, err
	}
	if err := m.awaitState(ctx, mlv1.StateCompleted, jobs); err != nil {
		return l, err
	}
	if used, err = m.settle(ctx); err != nil {
		return l, err
	}
	l.life = used - before
	l.memory, err = m.peakMemory()
	return l, err
}

// createAndAwaitPods creates objects and returns the time from then until so many pods existed.
func (c *cluster) createAndAwaitPods(ctx context.Context, objects []client.Object, pods int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		say("load average %s", strings.Fields(string(text))[0])
	}
	appeared, failed := make(chan time.Time, 1), make(chan error, 2)
	watching := make(chan struct{})
	go func() {
		if err := c.watchPods(ctx, pods, watching, appeared); err != nil {
			failed <- err
		}
	}()
	select {
	case <-watching:
	case err := <-failed:
		return 0, err
	}
	start, before := time.Now(), processorTimes()
	go func() {
		if err := createAll(ctx, c.client, objects); err != nil {
			failed <- err
		}
	}()
	select {
	case end := <-appeared:
		after := processorTimes()
		for name := range after {
			after[name] -= before[name]
		}
		say("processor time meanwhile: %v", after)
		return end.Sub(start), nil
	case err := <-failed:
		return 0, err
	}
}

// watchPods tells when the watch is open, and when so many pods have appeared. It reads their metadata only.
func (c *cluster) watchPods(ctx context.Context, pods int, watching chan<- struct{}, appeared chan<- time.Time) error {
	all, err := metadata.NewForConfig(c.config)
	if err != nil {
		return err
	}
	resource := all.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace)
	none, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	version, seen := none.ResourceVersion, 0
	for {
		// The API server ends the watch of a client that does not keep up; it goes on from where it was.
		watched, err := resource.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return fmt.Errorf("watch pods (%d of %d exist): %w", seen, pods, err)
		}
		if watching != nil {
			close(watching)
			watching = nil
		}
		for change := range watched.ResultChan() {
			pod, ok := change.Object.(*metav1.PartialObjectMetadata)
			if !ok {
				return fmt.Errorf("watch pods (%d of %d exist): %w", seen, pods, apierrors.FromObject(change.Object))
			}
			version = pod.ResourceVersion
			if change.Type != watch.Added {
				continue
			}
			if seen++; seen == pods {
				appeared <- time.Now()
				watched.Stop()
				return nil
			}
		}
	}
}
