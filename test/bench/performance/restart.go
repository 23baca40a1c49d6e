package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
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
func measureRestarts(ctx context.Context, s settings) ([]restarts, error) {
	c, err := startCluster(ctx, s, clusterOptions{policy: true, pods: podLife{
		running: [2]time.Duration{500 * time.Millisecond, time.Second}, lasting: true,
	}})
	defer c.stop()
	if err != nil {
		return nil, err
	}
	m, err := c.startManager(ctx)
	if err != nil {
		return nil, err
	}
	defer m.stop()
	var objects []client.Object
	for i := range 2 * s.lifeJobs {
		objects = append(objects, trainingJob(namespace, jobName(i), s.workers))
	}
	if err := createAll(ctx, c.client, objects); err != nil {
		return nil, err
	}
	if err := m.awaitState(ctx, mlv1.StateRunning, len(objects)); err != nil {
		return nil, err
	}
	all := []restarts{{title: "lose it and end by themselves"}, {title: "run on until they are stopped"}}
	for i, object := range objects {
		of := &all[i%2]
		say("restart %d of %d: the others %s", i+1, len(objects), of.title)
		if err := c.restart(ctx, object.GetName(), i%2 == 0, of); err != nil {
			return nil, fmt.Errorf("restart %s: %w", object.GetName(), err)
		}
	}
	return all, nil
}

// restart kills one worker of a job, and the others after it if they end by themselves.
func (c *cluster) restart(ctx context.Context, name string, alone bool, into *restarts) error {
	ctx, cancel := context.WithTimeout(ctx, restartLimit)
	defer cancel()
	var pods corev1.PodList
	err := c.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{mlv1.LabelTrainingJob: name})
	if err != nil {
		return err
	}
	if len(pods.Items) != c.settings.workers {
		return fmt.Errorf("it has %d pods before", len(pods.Items))
	}
	typed, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	selector := metav1.ListOptions{LabelSelector: mlv1.LabelTrainingJob + "=" + name, ResourceVersion: pods.ResourceVersion}
	jobEvents, err := typed.BatchV1().Jobs(namespace).Watch(ctx, selector)
	if err != nil {
		return err
	}
	defer jobEvents.Stop()
	podEvents, err := typed.CoreV1().Pods(namespace).Watch(ctx, selector)
	if err != nil {
		return err
	}
	defer podEvents.Stop()

	if err := c.kill(ctx, &pods.Items[1%len(pods.Items)], 137); err != nil {
		return err
	}
	visible := time.Now()
	if alone {
		for i := range pods.Items {
			if i != 1%len(pods.Items) {
				if err := c.kill(ctx, &pods.Items[i], 75); err != nil {
					return err
				}
			}
		}
	}
	if _, err := awaitAdded[*batchv1.Job](ctx, jobEvents, 1, nil); err != nil {
		return err
	}
	into.job = append(into.job, time.Since(visible))
	old := map[types.UID]bool{}
	for i := range pods.Items {
		old[pods.Items[i].UID] = true
	}
	if old, err = awaitAdded[*corev1.Pod](ctx, podEvents, 1, old); err != nil {
		return err
	}
	into.pod = append(into.pod, time.Since(visible))
	if _, err = awaitAdded[*corev1.Pod](ctx, podEvents, c.settings.workers-1, old); err != nil {
		return err
	}
	into.pods = append(into.pods, time.Since(visible))
	return nil
}

// kill ends a pod's container with an exit code, as its kubelet reports it. A pod that is gone already is as well.
func (c *cluster) kill(ctx context.Context, pod *corev1.Pod, code int32) error {
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	for i := range ended.Status.ContainerStatuses {
		ended.Status.ContainerStatuses[i].Ready = false
		ended.Status.ContainerStatuses[i].State = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: metav1.Now()},
		}
	}
	return client.IgnoreNotFound(c.client.Status().Patch(ctx, ended, client.MergeFrom(pod)))
}

// awaitAdded waits for so many new objects, and returns those that are known then.
func awaitAdded[T client.Object](ctx context.Context, events watch.Interface, count int, known map[types.UID]bool) (map[types.UID]bool, error) {
	if known == nil {
		known = map[types.UID]bool{}
	}
	for count > 0 {
		select {
		case <-ctx.Done():
			return known, ctx.Err()
		case event, open := <-events.ResultChan():
			if !open {
				return known, errors.New("the watch ended")
			}
			object, ok := event.Object.(T)
			if ok && event.Type == watch.Added && !known[object.GetUID()] {
				known[object.GetUID()] = true
				count--
			}
		}
	}
	return known, nil
}

func restartTable(out io.Writer, all []restarts, workers int) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(out, "\nTime from the end of a killed worker being visible until its job is started again (%d jobs of %d workers each, "+
		"median, in brackets the least and the most):\n\n", len(all[0].job), workers)
	fmt.Fprintln(out, "| the other workers | new Job created | first new pod | all new pods |")
	fmt.Fprintln(out, "|---|---:|---:|---:|")
	for _, of := range all {
		fmt.Fprintf(out, "| %s | **%s** | %s | %s |\n", strings.TrimSpace(of.title), spread(of.job), spread(of.pod), spread(of.pods))
	}
}
