package performance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// restartLimit is how long a restart may take before the measurement gives up.
const restartLimit = 2 * time.Minute

// restarts is how long it took, from the moment at which the API server had accepted that one worker was killed.
type restarts struct {
	// title says what the other workers do.
	title string
	// job is until the new Job existed, pod until its first pod, pods until all of them.
	job, pod, pods []time.Duration
}

// measureRestarts kills one worker of each of several jobs, one job after the other.
func measureRestarts(b *bench, results *strings.Builder) {
	c := b.startCluster(clusterOptions{policy: true, pods: podLife{
		running: [2]time.Duration{500 * time.Millisecond, time.Second}, lasting: true,
	}})
	c.startManager()
	var objects []client.Object
	for i := range 2 * b.lifeJobs {
		objects = append(objects, trainingJob(namespace, jobName(i), b.workers))
	}
	require.NoError(b, c.createAll(b.Context(), objects))
	c.awaitState(mlv1.StateRunning, len(objects))
	all := []restarts{{title: "lose it and end by themselves"}, {title: "run on until they are stopped"}}
	for i, object := range objects {
		of := &all[i%2]
		say("restart %d of %d: the others %s", i+1, len(objects), of.title)
		c.restart(object.GetName(), i%2 == 0, of)
	}
	fmt.Fprintf(results, "\nTime from the end of a killed worker being visible until its job is started again (%d jobs of %d workers each, "+
		"median, in brackets the least and the most):\n\n", len(all[0].job), b.workers)
	fmt.Fprintln(results, "| the other workers | new Job created | first new pod | all new pods |")
	fmt.Fprintln(results, "|---|---:|---:|---:|")
	for _, of := range all {
		fmt.Fprintf(results, "| %s | **%s** | %s | %s |\n", strings.TrimSpace(of.title), spread(of.job), spread(of.pod), spread(of.pods))
	}
}

// restart kills one worker of a job, and the others after it if they end by themselves.
func (c *cluster) restart(name string, alone bool, into *restarts) {
	ctx, cancel := context.WithTimeout(c.Context(), restartLimit)
	defer cancel()
	var pods corev1.PodList
	require.NoError(c, c.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{mlv1.LabelTrainingJob: name}))
	require.Len(c, pods.Items, c.workers, "before the restart of %s", name)
	typed := c.typed()
	selector := metav1.ListOptions{LabelSelector: mlv1.LabelTrainingJob + "=" + name, ResourceVersion: pods.ResourceVersion}
	newJobs, err := typed.BatchV1().Jobs(namespace).Watch(ctx, selector)
	require.NoError(c, err)
	defer newJobs.Stop()
	newPods, err := typed.CoreV1().Pods(namespace).Watch(ctx, selector)
	require.NoError(c, err)
	defer newPods.Stop()

	killed := 1 % len(pods.Items)
	c.kill(ctx, &pods.Items[killed], 137)
	visible := time.Now()
	known := map[types.UID]bool{}
	for i := range pods.Items {
		known[pods.Items[i].UID] = true
		if alone && i != killed {
			c.kill(ctx, &pods.Items[i], 75)
		}
	}
	for _, next := range []struct {
		events watch.Interface
		count  int
		after  *[]time.Duration
	}{{newJobs, 1, &into.job}, {newPods, 1, &into.pod}, {newPods, c.workers - 1, &into.pods}} {
		c.awaitAdded(ctx, next.events, next.count, known)
		*next.after = append(*next.after, time.Since(visible))
	}
}

// kill ends a pod's container with an exit code, as its kubelet reports it. A pod that is gone already is as well.
func (c *cluster) kill(ctx context.Context, pod *corev1.Pod, code int32) {
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	for i := range ended.Status.ContainerStatuses {
		ended.Status.ContainerStatuses[i].Ready = false
		ended.Status.ContainerStatuses[i].State = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: metav1.Now()},
		}
	}
	require.NoError(c, client.IgnoreNotFound(c.client.Status().Patch(ctx, ended, client.MergeFrom(pod))))
}

// awaitAdded waits for so many objects that are not known yet.
func (c *cluster) awaitAdded(ctx context.Context, events watch.Interface, count int, known map[types.UID]bool) {
	for count > 0 {
		select {
		case <-ctx.Done():
			require.NoError(c, ctx.Err())
		case event, open := <-events.ResultChan():
			require.True(c, open, "the watch ended")
			object, ok := event.Object.(client.Object)
			if ok && event.Type == watch.Added && !known[object.GetUID()] {
				known[object.GetUID()] = true
				count--
			}
		}
	}
}
