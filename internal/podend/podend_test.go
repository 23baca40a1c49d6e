package podend_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

var (
	noon    = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	program = podend.Program{Container: "main", Remedies: map[string]string{
		reasons.OutOfMemory: "raise the limit", reasons.Evicted: "add a PodDisruptionBudget",
	}}
)

type podOption func(*corev1.Pod)

func pod(name string, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for _, change := range options {
		change(p)
	}
	return p
}

func failed(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func exit(code int32, after time.Duration, reason ...string) podOption {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, FinishedAt: metav1.NewTime(noon.Add(after)), Reason: strings.Join(reason, ""), Message: "bye",
			}},
		})
	}
}

func deleted(after, grace time.Duration) podOption {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp = ptr.To(metav1.NewTime(noon.Add(after + grace)))
		p.DeletionGracePeriodSeconds = ptr.To(int64(grace / time.Second))
	}
}

// initExit is the end of an init container.
func initExit(container string, code int32, words string, reason ...string) podOption {
	return func(p *corev1.Pod) {
		ended := &corev1.ContainerStateTerminated{ExitCode: code, Message: words}
		if len(reason) > 0 {
			ended.Reason = reason[0]
		}
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses,
			corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Terminated: ended}})
	}
}

func disrupted(reason, message string) podOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
	}
}

func because(reason, message string) podOption {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

func TestEndOf(t *testing.T) {
	tests := map[string]struct {
		pod  *corev1.Pod
		want podend.End
	}{
		"the program fails": {pod("a", exit(1, 0)), podend.End{reasons.ProgramFailed, "pod a on node n1 ended with exit code 1: bye", 1, false, "bye"}},
		"a signal kills it": {pod("a", exit(139, 0)),
			podend.End{reasons.ProgramKilled, "pod a on node n1 was killed by signal 11 (exit code 139): bye", 139, false, "bye"}},
		"it uses too much memory": {pod("a", exit(137, 0, "OOMKilled")), podend.End{reasons.OutOfMemory,
			"pod a on node n1 was killed for using more memory than its limit (exit code 137): bye; raise the limit", 137, false, "bye"}},
		"it cannot be started": {pod("a", exit(128, 0, "StartError")),
			podend.End{reasons.ContainerStartFailed, "pod a on node n1 could not start its program (exit code 128): bye", 128, false, "bye"}},
		"it lost a peer": {pod("a", exit(75, 0)), podend.End{reasons.PeerLost,
			"pod a on node n1 ended with exit code 75 after it lost contact to another pod of the job: bye", 75, false, "bye"}},
		"an init container fails": {pod("a", failed, initExit("prepare", 2, "no such bucket")), podend.End{reasons.InitContainerFailed,
			"pod a on node n1: the init container prepare ended with exit code 2: no such bucket", 0, false, "no such bucket"}},
		"an init container uses too much memory": {pod("a", failed, initExit("prepare", 137, "", "OOMKilled")), podend.End{reasons.InitContainerFailed,
			"pod a on node n1: the init container prepare was killed for using more memory than its limit (exit code 137)", 0, false, ""}},
		"the program fails, and then its sidecar": {pod("a", exit(1, 0), initExit("proxy", 143, "")),
			podend.End{reasons.ProgramFailed, "pod a on node n1 ended with exit code 1: bye", 1, false, "bye"}},
		"a user deletes the pod": {pod("a", deleted(0, time.Minute), exit(143, time.Second)),
			podend.End{reasons.PodDeleted, "pod a on node n1 was deleted", 0, true, ""}},
		"the grace period of a deleted pod ends": {pod("a", deleted(0, time.Minute), exit(137, time.Minute)),
			podend.End{reasons.PodDeleted, "pod a on node n1 was deleted", 0, true, ""}},
		"a deleted pod runs out of memory": {pod("a", deleted(0, time.Minute), exit(137, time.Second, "OOMKilled")), podend.End{reasons.OutOfMemory,
			"pod a on node n1 was killed for using more memory than its limit (exit code 137): bye; raise the limit", 137, false, "bye"}},
		"a deleted pod fails on its own": {pod("a", deleted(0, time.Minute), exit(3, time.Second)),
			podend.End{reasons.ProgramFailed, "pod a on node n1 ended with exit code 3: bye", 3, false, "bye"}},
		"a user deletes the pod, and the clock of its node is behind": {pod("a", deleted(0, time.Minute), exit(143, -4*time.Second)),
			podend.End{reasons.PodDeleted, "pod a on node n1 was deleted", 0, true, ""}},
		"it fails on its own a moment before it is deleted": {pod("a", deleted(0, time.Minute), exit(3, -4*time.Second)),
			podend.End{reasons.ProgramFailed, "pod a on node n1 ended with exit code 3: bye", 3, false, "bye"}},
		"it had failed before it was deleted": {pod("a", deleted(time.Minute, time.Minute), exit(143, 0)),
			podend.End{reasons.ProgramKilled, "pod a on node n1 was killed by signal 15 (exit code 143): bye", 143, false, "bye"}},
		"eviction through the API": {pod("a", failed, disrupted("EvictionByEvictionAPI", "drained")), podend.End{reasons.Evicted,
			"pod a on node n1 was evicted through the API, as kubectl drain does: EvictionByEvictionAPI: drained; add a PodDisruptionBudget", 0, true, ""}},
		"a pod with a higher priority": {pod("a", failed, disrupted("PreemptionByScheduler", "")), podend.End{reasons.PodPreempted,
			"pod a on node n1 was preempted for a pod with a higher priority: PreemptionByScheduler", 0, true, ""}},
		"a loss counts before an exit code": {pod("a", exit(1, 0), disrupted("DeletionByPodGC", "")), podend.End{reasons.NodeLost,
			"pod a on node n1 was lost with its node: DeletionByPodGC", 0, true, ""}},
		"its node was started again": {pod("a", exit(255, 0, "Unknown")), podend.End{reasons.NodeLost,
			"pod a on node n1 was lost with its node: the container runtime was started again and does not know how the container ended", 0, true, ""}},
		"the kubelet no longer finds its container": {pod("a", exit(137, 0, "ContainerStatusUnknown")), podend.End{reasons.NodeLost,
			"pod a on node n1 was lost with its node: ContainerStatusUnknown: bye", 0, true, ""}},
		"it ends with 255 itself": {pod("a", exit(255, 0, "Error")),
			podend.End{reasons.ProgramKilled, "pod a on node n1 was killed by signal 127 (exit code 255): bye", 255, false, "bye"}},
		"node pressure": {pod("a", because("Evicted", "The node was low on resource: memory.")), podend.End{reasons.NodePressure,
			"pod a on node n1 was evicted by the kubelet because its node was short of a resource: Evicted: The node was low on resource: memory.", 0, true, ""}},
		"the pod's own storage limit": {pod("a", because("Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi.")),
			podend.End{reasons.StorageLimitExceeded, "pod a on node n1 was evicted: ephemeral-storage limit exceeded: " +
				"Pod ephemeral local storage usage exceeds the total limit of containers 1Mi.", 0, false, ""}},
		"graceful shutdown of the node": {pod("a", because("Terminated", "Pod was terminated in response to imminent node shutdown.")),
			podend.End{reasons.NodeShutdown, "pod a on node n1 was stopped because its node was shut down: Terminated: " +
				"Pod was terminated in response to imminent node shutdown.", 0, true, ""}},
		"the kubelet does not accept the pod": {pod("a", because("OutOfcpu", "Node didn't have enough resource: cpu")), podend.End{reasons.NodeRefused,
			"pod a on node n1 was refused by the kubelet of its node: OutOfcpu: Node didn't have enough resource: cpu", 0, true, ""}},
		"nothing is known": {pod("a", because("", "")), podend.End{reasons.ProgramFailed, "pod a on node n1 failed: no container ended", 0, false, ""}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := program.EndOf(test.pod, podend.InWords(test.pod))
			assert.Equal(t, test.want, got)
			assert.Equal(t, got.Lost, podend.IsLoss(got.Reason))
		})
	}
}

func TestWhatFailed(t *testing.T) {
	const traceback = `Traceback (most recent call last):
  File "train.py", line 12, in <module>
    main()
RuntimeError: CUDA error: out of memory
[W123 ProcessGroupNCCL.cpp:1] destroy_process_group() was not called
`
	for name, test := range map[string]struct {
		output, want string
		secrets      []string
	}{
		"a traceback with a warning after it": {output: traceback, want: "RuntimeError: CUDA error: out of memory"},
		"the rank in front":                   {output: "[rank0]: Traceback\n[rank0]: torch.OutOfMemoryError: no memory\n", want: "[rank0]: torch.OutOfMemoryError: no memory"},
		"torchrun": {
			output: "ValueError: no data\n  raise ChildFailedError(\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n=====\nerror_file: <N/A>\n",
			want:   "ValueError: no data",
		},
		"a panic":           {output: "panic: nil map\n\ngoroutine 1 [running]:\nmain.main()", want: "panic: nil map"},
		"no error is named": {output: "epoch 1\nno such file: train.py\n\n", want: "no such file: train.py"},
		"nothing":           {},
		"a long line":       {output: "ValueError: " + strings.Repeat("ü", 2000), want: "ValueError: " + strings.Repeat("ü", 285) + "..."},
		"a secret where the line is cut": {
			output: "ValueError: " + strings.Repeat("ü", 280) + " mysecretvalue", secrets: []string{"mysecretvalue"},
			want: "ValueError: " + strings.Repeat("ü", 280) + " ***",
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, podend.WhatFailed(test.output, test.secrets...))
		})
	}
}

func TestTheMessageHasOneLineAndTheOutputTheRest(t *testing.T) {
	long := pod("a", exit(1, 0))
	long.Status.ContainerStatuses[0].State.Terminated.Message = strings.Repeat("ü", 3000) + " with mysecretvalue\nKeyError: 'loss'\n"
	end := program.EndOf(long, "pod a", "mysecretvalue")
	assert.Equal(t, "pod a ended with exit code 1: KeyError: 'loss'", end.Message)
	assert.True(t, strings.HasPrefix(end.Output, "...ü"), end.Output)
	assert.True(t, strings.HasSuffix(end.Output, "ü with ***\nKeyError: 'loss'"), end.Output)
	assert.Len(t, []rune(end.Output), 2048)
}

func TestCause(t *testing.T) {
	tests := map[string]struct {
		failed []*corev1.Pod
		want   string
	}{
		"a loss before a failure":                 {[]*corev1.Pod{pod("a", exit(1, 0)), pod("b", exit(143, time.Second), disrupted("DeletionByPodGC", ""))}, "b"},
		"a failure before those that lost a peer": {[]*corev1.Pod{pod("a", exit(75, 0)), pod("b", exit(1, time.Second))}, "b"},
		"the first of two failures":               {[]*corev1.Pod{pod("a", exit(2, time.Second)), pod("b", exit(1, 0))}, "b"},
		"a pod that a user deleted before another lost it": {
			[]*corev1.Pod{pod("a", exit(75, 2*time.Second)), pod("b", deleted(0, time.Minute), exit(143, time.Second))}, "b"},
		"a lost peer before a pod that was deleted for it": {
			[]*corev1.Pod{pod("a", exit(75, 0)), pod("b", deleted(time.Second, time.Minute), exit(143, 2*time.Second))}, "a"},
		"a failure a moment before its pod was deleted": {
			[]*corev1.Pod{pod("a", exit(75, 0)), pod("b", deleted(2*time.Second, time.Minute), exit(1, time.Second))}, "b"},
		"a failure before a pod that was deleted for it": {
			[]*corev1.Pod{pod("a", deleted(time.Second, time.Minute), exit(137, 2*time.Second)), pod("b", exit(1, 0))}, "b"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, program.Cause(test.failed).Name)
		})
	}
}

func TestCauseMayFollow(t *testing.T) {
	now := noon.Add(time.Second)
	seen := map[types.UID]time.Time{"a": noon}
	wait := func(pods ...*corev1.Pod) time.Duration { return program.CauseMayFollow(now, pods, 3, seen) }
	assert.Equal(t, 2*time.Second, wait(pod("a", exit(75, 0))), "the pod that was lost is still to come")
	assert.Zero(t, wait(pod("a", exit(75, 0)), pod("b", exit(1, 0))), "there is a cause")
	assert.Zero(t, wait(pod("a", exit(75, 0)), pod("b", exit(75, 0)), pod("c", exit(75, 0))), "no pod is left")
	assert.Zero(t, wait())
	assert.Equal(t, 2*time.Second, wait(pod("a", exit(75, -time.Hour))), "the clock of its node does not matter")
	assert.Equal(t, podend.CauseDelay, wait(pod("b", exit(75, 0))), "it was not seen before")
	assert.LessOrEqual(t, program.CauseMayFollow(now.Add(time.Minute), []*corev1.Pod{pod("a", exit(75, 0))}, 3, seen), time.Duration(0))
}

func TestEndsOfPodsThatLostAPeerAreRememberedWhileTheyAreThere(t *testing.T) {
	var lost podend.PeersLost
	a, b := types.NamespacedName{Namespace: "team", Name: "a"}, types.NamespacedName{Namespace: "team", Name: "b"}
	follower, other := pod("f", exit(75, time.Hour)), pod("o", exit(1, 0))
	first := map[types.UID]time.Time{"f": noon}
	assert.Nil(t, lost.Seen(a, &program, []*corev1.Pod{other}, noon))
	assert.Equal(t, first, lost.Seen(a, &program, []*corev1.Pod{follower, other}, noon))
	assert.Equal(t, first, lost.Seen(a, &program, []*corev1.Pod{follower}, noon.Add(time.Second)))
	assert.Equal(t, map[types.UID]time.Time{"f": noon.Add(time.Second)}, lost.Seen(b, &program, []*corev1.Pod{follower}, noon.Add(time.Second)))
	lost.Forget(a)
	assert.Equal(t, map[types.UID]time.Time{"f": noon.Add(time.Minute)}, lost.Seen(a, &program, []*corev1.Pod{follower}, noon.Add(time.Minute)))
}

func TestSchedulerDue(t *testing.T) {
	is := func(changes ...podOption) time.Time {
		return podend.SchedulerDue(pod("a", append([]podOption{func(p *corev1.Pod) {
			p.CreationTimestamp, p.Spec.NodeName, p.Spec.SchedulerName = metav1.NewTime(noon), "", "volcano"
		}}, changes...)...))
	}
	assert.Equal(t, noon.Add(time.Minute), is())
	for name, change := range map[string]podOption{
		"it has a node":     func(p *corev1.Pod) { p.Spec.NodeName = "n1" },
		"it is being ended": deleted(0, time.Minute),
		"it failed":         failed,
		"it was refused": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated"}}
		},
	} {
		assert.Zero(t, is(change), name)
	}
}

func TestObstacleOf(t *testing.T) {
	waits := func(reason string) *corev1.Pod {
		p := pod("a")
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Image: "img ", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}},
		}}
		return p
	}
	assert.Nil(t, podend.ObstacleOf(pod("a")))
	assert.Nil(t, podend.ObstacleOf(waits("ContainerCreating")))
	for reason, want := range map[string]string{
		"ErrImagePull": reasons.ImagePullFailed, "RegistryUnavailable": reasons.ImagePullFailed, "InvalidImageName": reasons.InvalidImageName,
		"CreateContainerConfigError": reasons.ContainerConfigError, "RunContainerError": reasons.ContainerStartFailed,
		"CrashLoopBackOff": podend.ContainerCrashing,
	} {
		assert.Equal(t, &podend.Obstacle{Reason: want, Container: "main", Image: "img", Detail: "why"}, podend.ObstacleOf(waits(reason)), reason)
	}
	refused := waits("ErrImagePull")
	refused.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available.", LastTransitionTime: metav1.NewTime(noon)}}
	obstacle := podend.ObstacleOf(refused)
	require.NotNil(t, obstacle)
	assert.Equal(t, podend.Obstacle{Reason: reasons.Unschedulable, Detail: "0/1 nodes are available", Since: noon}, *obstacle)
	refused.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
	assert.Equal(t, reasons.ImagePullFailed, podend.ObstacleOf(refused).Reason)
}

func TestWhichNodesMayHaveBeenLost(t *testing.T) {
	running := pod("b")
	running.Spec.NodeName = "n2"
	assert.Empty(t, program.Silent([]*corev1.Pod{pod("a", exit(1, 0)), running, nil}), "a crash has a cause of its own")
	silent := program.Silent([]*corev1.Pod{pod("a", exit(75, 0)), running, pod("c", exit(0, 0)), pod("d", disrupted("DeletionByPodGC", "")), nil})
	assert.Equal(t, []*corev1.Pod{running}, silent)

	ready := func(boot string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, NodeInfo: corev1.NodeSystemInfo{BootID: boot},
		}}
	}
	boots := podend.Boots(silent, map[string]*corev1.Node{"n2": ready("first")})
	assert.Equal(t, map[string]string{"n2": "first"}, boots)
	unreachable := ready("first")
	unreachable.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	for want, nodes := range map[string]map[string]*corev1.Node{
		"":                               {"n2": ready("first"), "n3": nil},
		"n2: the node no longer exists":  {"n2": nil},
		"n2: the node is not ready":      {"n2": {}},
		"n2: the node was started again": {"n2": ready("second")},
		"n2: the node has the taint " + corev1.TaintNodeUnreachable: {"n2": unreachable},
	} {
		name, why := podend.LostNode(boots, nodes)
		if name != "" {
			name += ": "
		}
		assert.Equal(t, want, name+why)
	}
	_, why := podend.LostNode(boots, nil)
	assert.Empty(t, why, "nothing is known of the node")
}

func TestOverduePodsAreForcedOnce(t *testing.T) {
	due := noon.Add(time.Minute + podend.Overdue)
	ending := pod("a", deleted(0, time.Minute))
	left, ends := podend.OverdueIn(due.Add(-time.Second), ending)
	assert.True(t, ends)
	assert.Equal(t, time.Second, left)
	pods := []*corev1.Pod{ending, pod("b"), pod("c", deleted(0, time.Minute), exit(1, 0)), pod("d", deleted(0, 0))}
	assert.Equal(t, pods[3:], overdueOf(due.Add(-time.Second), pods), "its grace period was short")
	assert.Equal(t, []*corev1.Pod{pods[0], pods[3]}, overdueOf(due, pods))
	assert.Equal(t, pods[:1], podend.ToForce(due, pods), "of the others one runs, one has ended, and one is kept by a finalizer alone")
}

func overdueOf(now time.Time, pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !podend.IsOverdue(now, pod) })
}
