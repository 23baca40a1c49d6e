package day

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// variableWork is the variable of the environment that says how long the training takes without a break.
const variableWork = "WORK"

func workOf(pod *corev1.Pod) string {
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.Name == variableWork {
			return variable.Value
		}
	}
	return ""
}

// process is the program of a pod: what it has done is in its memory, and grows with the time.
type process struct {
	pod     types.NamespacedName
	uid     types.UID
	replica string
	node    string
	from    time.Duration // what was done before it started
	work    time.Duration
	started time.Time
	ended   time.Time // zero while it runs
	well    bool
}

func (p *process) runs() bool { return p.ended.IsZero() }

// done is what has been done, at a time.
func (p *process) done(at time.Time) time.Duration {
	if !p.ended.IsZero() && p.ended.Before(at) {
		at = p.ended
	}
	return p.from + at.Sub(p.started)
}

// record is what the day was like.
type record struct {
	preemptions, checkpoints, starts int
	duplicates                       []string
	losses                           []loss
	lost                             map[string]*loss // by replica, until it starts again
	computed                         time.Duration
}

// loss is what a replica had to do again.
type loss struct {
	replica string
	at      time.Time
	done    time.Duration // when it was lost
	seen    bool
	again   time.Duration
	down    time.Duration
}

func (c *cluster) alive(node string) bool {
	m := c.machines[node]
	return m == nil || !m.dead
}

// runPods are the kubelets.
func (c *cluster) runPods(ctx context.Context, v *view) bool {
	did := false
	for uid, p := range c.processes { // a pod that was removed by force is stopped by its kubelet soon
		if pod := v.byName[p.pod]; p.runs() && (pod == nil || pod.UID != uid) && c.told[uid] != "stopping" {
			c.told[uid] = "stopping"
			c.at(c.world.clock.Now().Add(time.Second), func(now time.Time) { c.end(p, now, false) })
		}
	}
	for _, pod := range v.pods {
		if pod.Spec.NodeName == "" || !c.alive(pod.Spec.NodeName) {
			continue
		}
		if pod.DeletionTimestamp != nil {
			did = c.stopPod(pod) || did
			continue
		}
		did = c.runPod(ctx, pod) || did
	}
	return did
}

func (c *cluster) stopPod(pod *corev1.Pod) bool {
	if c.told[pod.UID] == "stopping" {
		return false
	}
	c.told[pod.UID] = "stopping"
	c.at(c.world.clock.Now().Add(stopTime), func(now time.Time) {
		if !c.alive(pod.Spec.NodeName) {
			return
		}
		if p := c.processes[pod.UID]; p != nil {
			c.end(p, now, c.machine(pod.Spec.NodeName).seen)
		}
		c.try(c.client.Delete(context.Background(), pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	})
	return true
}

func (c *cluster) runPod(ctx context.Context, pod *corev1.Pod) bool {
	p := c.processes[pod.UID]
	switch {
	case ended(pod):
		return false
	case p == nil && c.told[pod.UID] == "":
		c.told[pod.UID] = "starting"
		c.at(c.world.clock.Now().Add(startTime), func(now time.Time) { c.startProcess(pod, now) })
		return true
	case p == nil:
		return false
	case !p.runs() && p.well:
		done := pod.DeepCopy()
		done.Status.Phase = corev1.PodSucceeded
		done.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(p.started), FinishedAt: metav1.NewTime(p.ended), Reason: "Completed"},
		}}}
		return c.try(c.client.Status().Update(ctx, done))
	case p.runs() && pod.Status.Phase != corev1.PodRunning:
		running := pod.DeepCopy()
		at := metav1.NewTime(p.started)
		running.Status.Phase, running.Status.StartTime = corev1.PodRunning, &at
		running.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		}}
		return c.try(c.client.Status().Update(ctx, running))
	}
	return false
}

// startProcess starts the program of a pod: from the state in its image, if there is one.
func (c *cluster) startProcess(pod *corev1.Pod, now time.Time) {
	if c.told[pod.UID] != "starting" || !c.alive(pod.Spec.NodeName) {
		return
	}
	work, err := time.ParseDuration(workOf(pod))
	if err != nil {
		c.world.noteError("pod " + pod.Name + " does not say what it has to do")
		return
	}
	replica := pod.Labels[spotv1alpha1.LabelSpotInstanceJob] + "/" + pod.Labels[spotv1alpha1.LabelReplica]
	p := &process{
		pod: client.ObjectKeyFromObject(pod), uid: pod.UID, replica: replica, node: pod.Spec.NodeName,
		from: c.images[pod.Spec.Containers[0].Image], work: work, started: now,
	}
	for _, other := range c.processes {
		if other.replica == replica && (other.runs() || other.ended.After(now)) {
			c.record.duplicates = append(c.record.duplicates, replica+" at "+c.world.since().String())
		}
	}
	c.processes[pod.UID] = p
	c.told[pod.UID] = "started"
	c.record.starts++
	if lost := c.record.lost[replica]; lost != nil {
		lost.again, lost.down = lost.done-p.from, now.Sub(lost.at)
		c.record.losses = append(c.record.losses, *lost)
		delete(c.record.lost, replica)
	}
	c.at(now.Add(work-p.from), func(now time.Time) {
		if p.runs() && c.alive(p.node) {
			p.ended, p.well = now, true
			c.record.computed += now.Sub(p.started)
		}
	})
}

// end of a process before it was done.
func (c *cluster) end(p *process, at time.Time, seen bool) {
	if !p.runs() {
		return
	}
	p.ended = at
	c.record.computed += at.Sub(p.started)
	if c.record.lost == nil {
		c.record.lost = map[string]*loss{}
	}
	c.record.lost[p.replica] = &loss{replica: p.replica, at: at, done: p.done(at), seen: seen}
}

// checkpoint is the checkpoint agent of the node of a pod.
func (c *cluster) checkpoint(ctx context.Context, v *view, object *unstructured.Unstructured) bool {
	backup := checkpointbackup.Decode(object)
	if backup.Status.Phase != "" || backup.Deleted || c.busy[object.GetUID()] {
		return false
	}
	pod := v.byName[backup.Spec.Pod]
	if pod == nil || c.processes[pod.UID] == nil || !c.processes[pod.UID].runs() {
		return false
	}
	p := c.processes[pod.UID]
	c.busy[object.GetUID()] = true
	state := p.done(c.world.clock.Now())
	c.write(ctx, object, checkpointbackup.Status{Phase: checkpointbackup.Checkpointing})
	c.at(c.world.clock.Now().Add(agentTakes), func(now time.Time) {
		if !c.alive(p.node) {
			return
		}
		for _, container := range backup.Spec.Containers {
			c.images[container.Image] = state
		}
		c.record.checkpoints++
		var fresh unstructured.Unstructured
		fresh.SetGroupVersionKind(object.GroupVersionKind())
		if err := c.client.Get(context.Background(), client.ObjectKeyFromObject(object), &fresh); err != nil {
			return
		}
		c.write(context.Background(), &fresh, checkpointbackup.Status{
			Phase: checkpointbackup.Completed, Completed: now, Images: backup.Spec.Containers,
		})
	})
	return true
}

func (c *cluster) write(ctx context.Context, object *unstructured.Unstructured, status checkpointbackup.Status) {
	object = object.DeepCopy()
	object.Object["status"] = checkpointbackup.EncodeStatus(status)
	c.try(c.client.Status().Update(ctx, object))
}
