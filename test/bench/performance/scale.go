package performance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// load is what one round with TrainingJobs took.
type load struct {
	// pods is the time until all pods existed, running that until all jobs were Running.
	pods, running time.Duration
	// start is the manager's processor time until all jobs were Running and it rested, life that until all were Completed.
	start, life time.Duration
	// memory is the most that the manager had resident, in bytes, until all jobs ran and until all were Completed.
	memoryStart, memory int64
}

// measureScales measures bare Jobs and TrainingJobs in turn, each in a cluster of its own, and at last TrainingJobs whose
// workers report figures.
func measureScales(b *bench, results *strings.Builder) {
	var managers strings.Builder
	fmt.Fprintf(results, "\nTime until all pods exist, of jobs of %d workers created at once (%s):\n\n", b.workers, rounds(b.rounds))
	fmt.Fprintln(results, "| jobs | pods | bare Indexed Jobs | TrainingJobs | ratio | TrainingJobs, all Running |")
	fmt.Fprintln(results, "|---:|---:|---:|---:|---:|---:|")
	for _, jobs := range b.jobs {
		var bare []time.Duration
		var training []load
		for round := 1; round <= b.rounds; round++ {
			b.part("bare Jobs", func(b *bench) {
				took := b.measureBare(jobs)
				bare = append(bare, took)
				say("round %d: all pods of %d bare Jobs after %.2f s", round, jobs, took.Seconds())
			})
			b.part("TrainingJobs", func(b *bench) {
				l := b.measureTraining(jobs, false)
				training = append(training, l)
				say("round %d: %s", round, l.in(jobs))
			})
		}
		pods := each(training, func(l load) time.Duration { return l.pods })
		fmt.Fprintf(results, "| %d | %d | %s | %s | **%.2f** | %s |\n", jobs, jobs*b.workers, spread(bare), spread(pods),
			median(pods).Seconds()/median(bare).Seconds(), spread(each(training, func(l load) time.Duration { return l.running })))
		loadRow(&managers, jobs, "no", training)
		b.part("TrainingJobs that report figures", func(b *bench) {
			l := b.measureTraining(jobs, true)
			say("with figures: %s", l.in(jobs))
			loadRow(&managers, jobs, "yes (one round)", []load{l})
		})
	}
	fmt.Fprint(results, "\nThe manager meanwhile, and on until all jobs are Completed:\n\n")
	fmt.Fprintln(results, "| jobs | workers report figures | CPU per job until Running | CPU per job until Completed | peak memory until Running | peak memory until Completed |")
	fmt.Fprintln(results, "|---:|---|---:|---:|---:|---:|")
	results.WriteString(managers.String())
}

func loadRow(out *strings.Builder, jobs int, title string, loads []load) {
	middle := func(of func(load) time.Duration) float64 { return perJob(median(each(loads, of)), jobs) }
	megabytes := func(of func(load) int64) int64 { return median(each(loads, of)) / 1e6 }
	fmt.Fprintf(out, "| %d | %s | **%.1f ms** | %.1f ms | **%d MB** | %d MB |\n", jobs, title,
		middle(func(l load) time.Duration { return l.start }), middle(func(l load) time.Duration { return l.life }),
		megabytes(func(l load) int64 { return l.memoryStart }), megabytes(func(l load) int64 { return l.memory }))
}

func (l load) in(jobs int) string {
	return fmt.Sprintf("all pods of %d TrainingJobs after %.2f s, all Running after %.1f s; manager %.1f ms per job until then, %.1f ms until Completed; %d MB, %d MB",
		jobs, l.pods.Seconds(), l.running.Seconds(), perJob(l.start, jobs), perJob(l.life, jobs), l.memoryStart>>20, l.memory>>20)
}

// perJob is a time divided by the number of jobs, in milliseconds.
func perJob(all time.Duration, jobs int) float64 { return all.Seconds() * 1000 / float64(jobs) }

func (b *bench) measureBare(jobs int) time.Duration {
	c := b.startCluster(clusterOptions{policy: true, pods: podLife{lasting: true}})
	// The manager runs its first jobs, so that the cluster has done the same before as in the other rounds, and a Job of
	// theirs serves as the pattern.
	c.startManager()
	c.stop(managerName)
	var patterns batchv1.JobList
	require.NoError(b, c.client.List(b.Context(), &patterns, client.InNamespace(warmUp), client.Limit(1)))
	require.NotEmpty(b, patterns.Items, "the manager made no Job")
	var objects []client.Object
	for i := range jobs {
		objects = append(objects, bareJob(&patterns.Items[0], jobName(i)))
	}
	return c.createAndAwaitPods(objects, jobs*b.workers)
}

func (b *bench) measureTraining(jobs int, figures bool) (l load) {
	c := b.startCluster(clusterOptions{policy: true, pods: podLife{lasting: true, loopback: figures}})
	c.startManager()
	w := b.startWorker(advancing(1))
	var objects []client.Object
	for i := range jobs {
		job := trainingJob(namespace, jobName(i), b.workers)
		if figures {
			w.reports(job)
		}
		objects = append(objects, job)
	}
	before := c.settle()

	start := time.Now()
	l.pods = c.createAndAwaitPods(objects, jobs*b.workers)
	c.awaitState(mlv1.StateRunning, jobs)
	l.running = time.Since(start)
	l.start, l.memoryStart = c.settle()-before, c.peakMemory()

	c.change(podLife{loopback: figures})
	c.awaitState(mlv1.StateCompleted, jobs)
	l.life, l.memory = c.settle()-before, c.peakMemory()
	return l
}

// createAndAwaitPods creates objects and returns the time from then until so many pods existed. It reads their metadata only.
func (c *cluster) createAndAwaitPods(objects []client.Object, pods int) time.Duration {
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Minute)
	defer cancel()
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		say("load average %s", strings.Fields(string(text))[0])
	}
	all, err := metadata.NewForConfig(c.config)
	require.NoError(c, err)
	resource := all.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(namespace)
	none, err := resource.List(ctx, metav1.ListOptions{})
	require.NoError(c, err)
	version, seen := none.ResourceVersion, 0
	watched, err := resource.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	require.NoError(c, err)

	start, before := time.Now(), processorTimes(c)
	var end time.Time
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.createAll(ctx, objects) })
	group.Go(func() (err error) {
		for {
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
					end = time.Now()
					watched.Stop()
					return nil
				}
			}
			// The API server ends the watch of a client that does not keep up; it goes on from where it was.
			if watched, err = resource.Watch(ctx, metav1.ListOptions{ResourceVersion: version}); err != nil {
				return fmt.Errorf("watch pods (%d of %d exist): %w", seen, pods, err)
			}
		}
	})
	require.NoError(c, group.Wait())
	say("processor time meanwhile: %v", usedSince(c, before))
	return end.Sub(start)
}
