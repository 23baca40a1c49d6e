package aijob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/source"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func withCode() *builders.AIJobBuilder {
	return builders.AIJob("a").Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Source = &podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: "script"}}
	})
}

// fetched has the container that fetches the code end.
func fetched(pod *corev1.Pod, code int32, message string) {
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: source.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message},
	}}}
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
}

func TestThePodFetchesItsCode(t *testing.T) {
	job := withCode().Obj()
	job.Status.Source = &podtemplate.SourceStatus{From: "configmap://script", Digest: "sha256:1"}
	pod := buildPod(job, 0, "a", "", "operator:1")
	assert.Equal(t, source.Container, pod.Spec.InitContainers[0].Name)
	assert.Equal(t, "operator:1", pod.Spec.InitContainers[0].Image)
	assert.Contains(t, pod.Spec.InitContainers[0].Env, corev1.EnvVar{Name: source.EnvDigest, Value: "sha256:1"})
	assert.Equal(t, "/workspace/source", pod.Spec.Containers[0].WorkingDir)
}

func TestTheCodeOfTheFirstAttemptIsKept(t *testing.T) {
	w := worldOf(withCode()).scheduled("a")
	fetched(w.pod(0, "a", corev1.PodRunning), 0, `{"source": {"digest": "sha256:1", "files": 1}}`)
	status := plan(w.observed).status
	assert.Equal(t, &podtemplate.SourceStatus{From: "configmap://script", Digest: "sha256:1", Files: 1}, status.Source)

	w.job.Status = status
	fetched(w.pods[0], 0, `{"source": {"digest": "sha256:2"}}`)
	status = plan(w.observed).status
	assert.Equal(t, aiplatformv1alpha1.AIJobFailed, status.Phase)
	assert.Equal(t, reasons.SourceChanged, status.Reason)
}

func TestCodeThatCannotBeFetched(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		phase  aiplatformv1alpha1.AIJobPhase
	}{
		"never":         {reasons.SourceInvalid, aiplatformv1alpha1.AIJobFailed},
		"not there yet": {reasons.SourceNotFound, aiplatformv1alpha1.AIJobRetrying},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(withCode()).scheduled("a")
			fetched(w.pod(0, "a", corev1.PodPending), 65, `{"problem": {"reason": "`+test.reason+`", "message": "spec.source: said so"}}`)
			status := plan(w.observed).status
			assert.Equal(t, test.phase, status.Phase)
			assert.Equal(t, test.reason, status.Reason)
			assert.Contains(t, status.Message, "spec.source: said so")
			assert.Zero(t, status.RetryCount)
		})
	}
}
