package podend

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func status(name string, state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: state}
}

func runs(name string) corev1.ContainerStatus {
	return status(name, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func ended(name string, code int32) corev1.ContainerStatus {
	return status(name, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}})
}

func podOf(phase corev1.PodPhase, containers ...corev1.ContainerStatus) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.PodStatus{Phase: phase, ContainerStatuses: containers}}
}

func TestAPodIsOutlivedOnceItsOwnContainersHaveEndedAndOthersHaveNot(t *testing.T) {
	const never, onFailure = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure
	waits := status("train", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})
	deleted := podOf(corev1.PodRunning, ended("train", 0), runs("proxy"))
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		policy corev1.RestartPolicy
		own    []string
		phase  corev1.PodPhase
	}{
		"it succeeded":                         {podOf(corev1.PodRunning, ended("train", 0), runs("proxy")), never, []string{"train"}, corev1.PodSucceeded},
		"it failed":                            {podOf(corev1.PodRunning, ended("train", 3), runs("proxy")), never, []string{"train"}, corev1.PodFailed},
		"one of two failed":                    {podOf(corev1.PodRunning, ended("a", 0), runs("proxy"), ended("b", 1)), never, []string{"a", "b"}, corev1.PodFailed},
		"it runs":                              {podOf(corev1.PodRunning, runs("train"), runs("proxy")), never, []string{"train"}, ""},
		"one of two runs":                      {podOf(corev1.PodRunning, ended("a", 0), runs("proxy"), runs("b")), never, []string{"a", "b"}, ""},
		"it is not heard of":                   {podOf(corev1.PodPending, runs("proxy")), never, []string{"train"}, ""},
		"all have ended":                       {podOf(corev1.PodRunning, ended("train", 0), ended("proxy", 0)), never, []string{"train"}, ""},
		"there are no others":                  {podOf(corev1.PodRunning, ended("train", 0)), never, []string{"train"}, ""},
		"it succeeded, and would be retried":   {podOf(corev1.PodRunning, ended("train", 0), runs("proxy")), onFailure, []string{"train"}, corev1.PodSucceeded},
		"it failed, and is started again":      {podOf(corev1.PodRunning, ended("train", 1), runs("proxy")), onFailure, []string{"train"}, ""},
		"it failed, and waits for its restart": {podOf(corev1.PodRunning, waits, runs("proxy")), onFailure, []string{"train"}, ""},
		"it is being deleted":                  {deleted, never, []string{"train"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := OutlivedOf([]*corev1.Pod{test.pod}, test.policy, test.own...)
			if test.phase == "" {
				assert.Empty(t, found)
				return
			}
			assert.Equal(t, []Outlived{{Pod: test.pod, Phase: test.phase, Others: []string{"proxy"}}}, found)
		})
	}
}

func TestAPodThatWasOutlivedEndsWithItsLastContainer(t *testing.T) {
	pod := podOf(corev1.PodSucceeded, ended("train", 0), runs("proxy"))
	pod.Status.Conditions = []corev1.PodCondition{{Type: ConditionEnded, Status: corev1.ConditionTrue, Reason: string(corev1.PodSucceeded)}}
	assert.Equal(t, corev1.PodRunning, Phase(&pod.Status))
	assert.True(t, IsBeingEnded(pod))
	again := OutlivedOf([]*corev1.Pod{pod}, corev1.RestartPolicyNever, "train")
	require.Len(t, again, 1, "its kubelet may have taken that back")
	assert.True(t, again[0].IsReported() && again[0].IsCounted())
	pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](1)
	assert.Empty(t, OutlivedOf([]*corev1.Pod{pod}, corev1.RestartPolicyNever, "train"), "it is being stopped")

	pod.Status.ContainerStatuses[1] = ended("proxy", 143)
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{runs("agent")}
	assert.Equal(t, corev1.PodRunning, Phase(&pod.Status), "the agent stores the last checkpoint")

	pod.Status.InitContainerStatuses[0] = ended("agent", 0)
	pod.Status.Phase = corev1.PodFailed // for the exit code of the proxy
	assert.Equal(t, corev1.PodSucceeded, Phase(&pod.Status))
	assert.False(t, IsBeingEnded(pod))

	assert.Equal(t, corev1.PodFailed, Phase(&podOf(corev1.PodFailed, ended("train", 1)).Status))
}
