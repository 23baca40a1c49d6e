package aijob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAJobServesWhileItRuns(t *testing.T) {
	b := job().Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Service = &aiplatformv1alpha1.AIJobService{Port: 8080, ReadinessPath: "/v2/health/ready"}
	})
	w := worldOf(b).scheduled("a")
	w.missingServices = buildServices(w.job)
	assert.Equal(t, "create Service infer, create 0 on a", steps(plan(w.observed)))
	assert.Empty(t, w.job.Status.URL)

	w.missingServices = nil
	w.pod(0, "a", corev1.PodRunning)
	w.job.Status = plan(w.observed).status
	assert.Equal(t, "http://infer.default.svc:8080", w.job.Status.URL)

	w.missingServices = buildServices(w.job)
	assert.Equal(t, "create Service infer", steps(plan(w.observed)), "it is there as long as the job runs")

	exit(w.pods[0], 0, "", 0)
	assert.Empty(t, plan(w.observed).status.URL)
}

func TestAServiceLeadsToThePodsThatAreReady(t *testing.T) {
	for name, test := range map[string]struct {
		service aiplatformv1alpha1.AIJobService
		probe   corev1.ProbeHandler
	}{
		"by a request":    {aiplatformv1alpha1.AIJobService{Port: 9000, ReadinessPath: "/ready"}, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready"}}},
		"by a connection": {aiplatformv1alpha1.AIJobService{Port: 9000}, corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}},
	} {
		t.Run(name, func(t *testing.T) {
			served := builders.AIJob("infer").Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.Service = &test.service }).Obj()
			services, pod := buildServices(served), buildPod(served, 0, "a", "", "")
			require.Len(t, services, 1)
			assert.Equal(t, "infer", services[0].Name)
			assert.Equal(t, map[string]string{aiplatformv1alpha1.LabelAIJob: "infer"}, services[0].Spec.Selector)
			assert.Equal(t, int32(9000), services[0].Spec.Ports[0].Port)
			assert.False(t, services[0].Spec.PublishNotReadyAddresses)
			container := pod.Spec.Containers[0]
			assert.Equal(t, int32(9000), container.Ports[0].ContainerPort)
			probe := container.ReadinessProbe.ProbeHandler
			if probe.HTTPGet != nil {
				assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.StrVal)
				probe.HTTPGet.Port = test.probe.HTTPGet.Port
			} else {
				assert.Equal(t, container.Ports[0].Name, probe.TCPSocket.Port.StrVal)
				probe.TCPSocket.Port = test.probe.TCPSocket.Port
			}
			assert.Equal(t, test.probe, probe)
		})
	}
	both := gang().Spec(func(s *aiplatformv1alpha1.AIJobSpec) { s.Service = &aiplatformv1alpha1.AIJobService{Port: 9000} }).Obj()
	require.Len(t, buildServices(both), 2)
	assert.Equal(t, "train-members", buildServices(both)[0].Name)
}
