package source

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

var script = &podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: "script"}}

// ended is a pod whose container that fetches has ended.
func ended(state corev1.ContainerStateTerminated) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
		{Name: "prepare"}, {Name: Container, State: corev1.ContainerState{Terminated: &state}},
	}}}
}

func TestFetched(t *testing.T) {
	whole := corev1.ContainerStateTerminated{Message: `{"source": {"from": "elsewhere", "digest": "sha256:1", "files": 2}}`}
	assert.Equal(t, &podtemplate.SourceStatus{From: "configmap://script", Digest: "sha256:1", Files: 2}, Fetched(ended(whole), script))
	assert.Nil(t, Fetched(ended(whole), nil), "of a job without code")
	assert.Nil(t, Fetched(&corev1.Pod{}, script), "of a pod that has none")
	assert.Nil(t, Fetched(ended(corev1.ContainerStateTerminated{Message: "{"}), script))
	whole.ExitCode = 1
	assert.Nil(t, Fetched(ended(whole), script))
}

func TestEndOf(t *testing.T) {
	for name, test := range map[string]struct {
		state corev1.ContainerStateTerminated
		want  *podend.End
	}{
		"it has fetched": {corev1.ContainerStateTerminated{}, nil},
		"it was stopped": {corev1.ContainerStateTerminated{ExitCode: podend.ExitTerminated}, nil},
		"permanently": {
			corev1.ContainerStateTerminated{ExitCode: 65, Message: `{"problem": {"reason": "SourceInvalid", "message": "spec.source: no"}}`},
			&podend.End{Reason: reasons.SourceInvalid, Message: "worker 0 cannot fetch its code: spec.source: no"},
		},
		"for now": {
			corev1.ContainerStateTerminated{ExitCode: 69, Message: `{"problem": {"reason": "SourceUnreachable", "message": "spec.source: no"}}`},
			&podend.End{Reason: reasons.SourceUnreachable, Message: "worker 0 cannot fetch its code: spec.source: no", Lost: true},
		},
		"a reason that is none of these": {
			corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"problem": {"reason": "Evicted", "message": "x"}}`},
			&podend.End{Reason: reasons.InitContainerFailed, Message: `worker 0: the container operator-source ended with exit code 1: {"problem": {"reason": "Evicted", "message": "x"}}`},
		},
		"no memory": {
			corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"},
			&podend.End{Reason: reasons.SourceInvalid, Message: "worker 0 cannot fetch its code: the container operator-source used too much memory: " +
				"name a smaller repository or archive, or an image that has the code"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, EndOf(ended(test.state), "worker 0")) })
	}
	assert.Nil(t, EndOf(&corev1.Pod{}, "worker 0"))
}

func TestFollow(t *testing.T) {
	first := &podtemplate.SourceStatus{From: "configmap://script", Digest: "sha256:1"}
	has := func(digest string) *corev1.Pod {
		return ended(corev1.ContainerStateTerminated{Message: `{"source": {"digest": "` + digest + `"}}`})
	}
	follow := func(first *podtemplate.SourceStatus, pods ...*corev1.Pod) (*podtemplate.SourceStatus, *corev1.Pod, string) {
		return Follow(script, first, pods, func(*corev1.Pod) string { return "worker 0" })
	}
	for name, test := range map[string]struct {
		before *podtemplate.SourceStatus
		pod    *corev1.Pod
		want   string
	}{
		"at the first start":                   {nil, has("sha256:1"), "sha256:1"},
		"the same":                             {first, has("sha256:1"), "sha256:1"},
		"the spec was edited":                  {&podtemplate.SourceStatus{From: "configmap://other", Digest: "sha256:2"}, has("sha256:1"), "sha256:1"},
		"a pod that is not there, or has none": {first, nil, "sha256:1"},
	} {
		t.Run(name, func(t *testing.T) {
			is, other, message := follow(test.before, nil, test.pod)
			assert.Equal(t, test.want, is.Digest)
			assert.Equal(t, "configmap://script", is.From)
			assert.Nil(t, other)
			assert.Empty(t, message)
		})
	}
	changed := has("sha256:2")
	is, other, message := follow(first, has("sha256:1"), changed)
	assert.Equal(t, first, is)
	assert.Same(t, changed, other)
	assert.Contains(t, message, "its digest is sha256:2, not sha256:1")
}

func TestCodeIsPinnedUntilOtherCodeIsNamed(t *testing.T) {
	first := &podtemplate.SourceStatus{From: script.Origin(), Digest: "sha256:1"}
	assert.Equal(t, first, Pinned(script, first))
	assert.Nil(t, Pinned(script, nil))
	assert.Nil(t, Pinned(nil, first))
	assert.Nil(t, Pinned(&podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: "other"}}, first))
}

// Every reason of a problem has a meaning: it passes, or does not.
func TestReasonsOfProblems(t *testing.T) {
	for reason := range exitCodes {
		assert.NotEqual(t, IsPermanent(reason), IsTemporary(reason), reason)
		assert.NotZero(t, (&Problem{Reason: reason}).ExitCode())
	}
	assert.False(t, IsTemporary("Evicted"))
}
