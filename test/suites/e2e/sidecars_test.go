//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// The two kinds of sidecars that webhooks inject: one that the kubelet ends after the other containers, and an ordinary container, which goes on.
const nativeSidecar, ordinarySidecar = "native-proxy", "proxy"

// untilTold runs until SIGTERM, on which it ends at once, as a failure: the worst that a sidecar can do to its pod.
const untilTold = `trap "exit 143" TERM; while :; do sleep 3600 & wait; done`

// injectSidecars has a mutating webhook add sidecars to all pods of a namespace, as that of a service mesh does.
func injectSidecars(t *testing.T, ns string) {
	t.Helper()
	if os.Getenv("E2E_KUBELET_DIR") == "" {
		t.Skip("the API server must reach a webhook on the loopback address of this machine; make e2e has one on its own node")
	}
	server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(addSidecars)})
	t.Cleanup(server.Close)
	injection := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-sidecars"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "sidecars.e2e.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To(server.URL + "/"), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	require.NoError(t, cluster.Create(t.Context(), injection))
	t.Cleanup(func() { assert.NoError(t, cluster.Delete(context.WithoutCancel(t.Context()), injection)) })
}

func addSidecars(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	sidecar := corev1.Container{
		Image: pod.Spec.Containers[0].Image, Command: []string{"/bin/sh", "-c", untilTold}, SecurityContext: pod.Spec.Containers[0].SecurityContext,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("8Mi"),
		}},
	}
	native, ordinary := *sidecar.DeepCopy(), sidecar
	native.Name, native.RestartPolicy, ordinary.Name = nativeSidecar, ptr.To(corev1.ContainerRestartPolicyAlways), ordinarySidecar
	pod.Spec.InitContainers = append([]corev1.Container{native}, pod.Spec.InitContainers...)
	pod.Spec.Containers = append([]corev1.Container{ordinary}, pod.Spec.Containers...)
	next, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, next)
}

// endedWithSidecars waits until all pods with a label have ended, their sidecars too, and returns them.
func endedWithSidecars(t *testing.T, ns, label, value string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	eventually(t, "the sidecars of "+value+" end", func(ctx context.Context) (bool, error) {
		if err := cluster.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{label: value}); err != nil {
			return false, err
		}
		for i := range pods.Items {
			for _, of := range [][]corev1.ContainerStatus{pods.Items[i].Status.InitContainerStatuses, pods.Items[i].Status.ContainerStatuses} {
				for j := range of {
					if of[j].State.Terminated == nil {
						return false, nil
					}
				}
			}
		}
		return len(pods.Items) > 0, nil
	})
	for i := range pods.Items {
		assert.Contains(t, containersOf(&pods.Items[i]), nativeSidecar)
		assert.Contains(t, containersOf(&pods.Items[i]), ordinarySidecar)
	}
	return pods.Items
}

func containersOf(pod *corev1.Pod) (names []string) {
	for _, of := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range of {
			names = append(names, of[i].Name)
		}
	}
	return names
}

// Jobs end with their own containers, whatever a service mesh has put beside these.
func TestJobsEndThoughTheirSidecarsGoOn(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	injectSidecars(t, ns)

	t.Run("a TrainingJob, which finds its peers and keeps its last checkpoint", func(t *testing.T) {
		t.Parallel()
		job := digits(ns, "trains").obj()
		job.Spec.Hyperparameters.Epochs, job.Spec.Networking.Preflight = ptr.To[int32](2), ptr.To(true)
		require.NoError(t, cluster.Create(t.Context(), job))
		eventually(t, "its scale has a selector, as autoscalers read it", func(ctx context.Context) (bool, error) {
			scale := &autoscalingv1.Scale{}
			if err := cluster.SubResource("scale").Get(ctx, job, scale); err != nil || scale.Status.Selector == "" {
				return false, err
			}
			selector, err := labels.Parse(scale.Status.Selector)
			if err != nil {
				return false, err
			}
			var pods corev1.PodList
			err = cluster.List(ctx, &pods, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: selector})
			return len(pods.Items) == 2, err
		})
		done := completes(t, job)
		assert.Zero(t, done.Status.RestartCount)
		assert.True(t, meta.IsStatusConditionTrue(done.Status.Conditions, reasons.ConditionNetworkReady), "its workers have found one another before")
		require.NotNil(t, done.Status.Checkpoint)
		assert.Equal(t, int32(2), done.Status.Checkpoint.Epoch, "the agent brought it to the storage after the end of the training")
		assert.Len(t, endedWithSidecars(t, ns, mlv1.LabelTrainingJob, job.Name), 2)
	})
	t.Run("a TrainingJob that fails", func(t *testing.T) {
		t.Parallel()
		job := program(ns, "fails", "exit 3")
		failed := fails(t, job)
		assert.Equal(t, reasons.ProgramFailed, failed.Status.LastFailure.Reason)
		assert.Equal(t, ptr.To[int32](3), failed.Status.LastFailure.ExitCode)
		endedWithSidecars(t, ns, mlv1.LabelTrainingJob, job.Name)
	})
	t.Run("an AIJob", func(t *testing.T) {
		t.Parallel()
		job := pythonJob(t, ns, "infers", "print('done')").ToCreate()
		require.NoError(t, cluster.Create(t.Context(), job))
		awaitAIJob(t, job, aiplatformv1alpha1.AIJobSucceeded)
		endedWithSidecars(t, ns, aiplatformv1alpha1.LabelAIJob, job.Name)
	})
	t.Run("a SpotInstanceJob", func(t *testing.T) {
		t.Parallel()
		job := builders.SpotInstanceJob("spot").Namespace(ns).Replicas(1).ToCreate()
		template := &job.Spec.JobTemplate.Spec.Template.Spec
		template.SecurityContext = restrictedPod()
		template.Containers = []corev1.Container{{
			Name: "train", Image: workerImage(t), Command: []string{"/usr/bin/python3", "-c", "print('done')"}, SecurityContext: restrictedContainer(),
		}}
		c := spotClient(t)
		require.NoError(t, c.Create(t.Context(), job))
		eventually(t, "it has succeeded", func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKeyFromObject(job), job)
			return job.Status.Phase == spotv1alpha1.JobSucceeded, err
		})
		assert.Zero(t, job.Status.PreemptionCount)
		for _, replica := range job.Status.JobStatuses {
			assert.Zero(t, replica.RestartCount)
		}
	})
}
