package rbac_test

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// aiJob has a gang, with a claim and in a sandbox, fail, come back from DeadLetter, lose a pod, and succeed, until its time to live is over.
func aiJob(w *world) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Value: 1000}
	require.NoError(w.t, w.Create(w.t.Context(), class))
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	queue.Spec.PriorityClass = class.Name
	require.NoError(w.t, w.Create(w.t.Context(), queue))
	sandbox := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace}, Handler: "sandbox",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("10m")}},
	}
	require.NoError(w.t, w.Create(w.t.Context(), sandbox))
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: w.namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		},
	}))
	w.gpuNode(w.namespace + "-gpus")
	job := builders.AIJob("infer").Namespace(w.namespace).Gang(2).GPUs(1).Queue(queue.Name).Retries(0, 0).
		Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
			s.TTLSecondsAfterFinished = ptr.To[int32](0)
			s.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true},
			}}}
			s.PodTemplate = &podtemplate.PodTemplate{RuntimeClassName: &sandbox.Name}
			s.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"test": aiplatformv1alpha1.LabelValue(w.namespace)}
		}).ToCreate()
	require.NoError(w.t, w.Create(w.t.Context(), job))

	first := w.memberPods(job, 0)
	w.run(first...)
	w.awaitAIJob(job, aiplatformv1alpha1.AIJobRunning)
	w.end(1, first[0])
	w.awaitAIJob(job, aiplatformv1alpha1.AIJobDeadLetter)
	w.stops(first[1])

	annotation := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, aiplatformv1alpha1.AnnotationRequeue)
	require.NoError(w.t, w.Patch(w.t.Context(), job, client.RawPatch(types.MergePatchType, annotation)))
	second := w.memberPods(job, 1)
	w.run(second...)
	w.awaitAIJob(job, aiplatformv1alpha1.AIJobRunning)
	require.NoError(w.t, w.Delete(w.t.Context(), second[1], client.GracePeriodSeconds(0)))
	w.stops(second[0])

	third := w.memberPods(job, 2)
	w.run(third...)
	w.awaitAIJob(job, aiplatformv1alpha1.AIJobRunning)
	// The manager's cache does not have a pod without its label: it is read by itself.
	hide := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, aiplatformv1alpha1.LabelAIJob)
	require.NoError(w.t, w.Patch(w.t.Context(), third[0], client.RawPatch(types.MergePatchType, hide)))
	w.end(0, third...)
	w.awaitEnd(job)
}

// strangersMembers has the Service of a gang have another owner.
func strangersMembers(w *world) {
	w.gpuNode(w.namespace + "-gpus")
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "infer-members", Namespace: w.namespace},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}))
	job := builders.AIJob("infer").Namespace(w.namespace).Gang(2).GPUs(1).
		Spec(func(s *aiplatformv1alpha1.AIJobSpec) {
			s.NodeSelector = map[string]aiplatformv1alpha1.LabelValue{"test": aiplatformv1alpha1.LabelValue(w.namespace)}
		}).ToCreate()
	require.NoError(w.t, w.Create(w.t.Context(), job))
	w.awaitAIJob(job, aiplatformv1alpha1.AIJobRetrying)
	require.Equal(w.t, reasons.ObjectConflict, job.Status.Reason)
}

// gpuNode makes a node with room for two pods with a GPU, for the jobs of this scenario alone.
func (w *world) gpuNode(name string) {
	w.t.Helper()
	w.ordinaryNode(name)
	node := &corev1.Node{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, node))
	before := node.DeepCopy()
	node.Labels = map[string]string{"test": w.namespace}
	node.Spec.Taints = nil // which the API server gives a new node
	require.NoError(w.t, w.Patch(w.t.Context(), node, client.MergeFrom(before)))
	before = node.DeepCopy()
	node.Status.Allocatable = corev1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("10"), "nvidia.com/gpu": resource.MustParse("2"),
	}
	node.Status.Capacity = node.Status.Allocatable
	require.NoError(w.t, w.Status().Patch(w.t.Context(), node, client.MergeFrom(before)))
}

// memberPods waits for the pods of a try, and has them bound to the node that they are for.
func (w *world) memberPods(job *aiplatformv1alpha1.AIJob, attempt int) []*corev1.Pod {
	w.t.Helper()
	var list []*corev1.Pod
	for member := range int(job.Spec.Gang.MinMembers) {
		pod := &corev1.Pod{}
		key := client.ObjectKey{Namespace: w.namespace, Name: fmt.Sprintf("%s-%d-%d", job.Name, member, attempt)}
		w.await("pod "+key.Name, func(ctx context.Context) (bool, error) {
			err := w.Get(ctx, key, pod)
			return err == nil, client.IgnoreNotFound(err)
		})
		on := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: on}}
		require.NoError(w.t, w.SubResource("binding").Create(w.t.Context(), pod, binding))
		list = append(list, pod)
	}
	return list
}

// stops waits until a pod is asked to end, and has it end.
func (w *world) stops(pod *corev1.Pod) {
	w.t.Helper()
	w.awaitChild(pod, func() bool { return pod.DeletionTimestamp != nil })
	require.NoError(w.t, w.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0)))
}

func (w *world) awaitAIJob(job *aiplatformv1alpha1.AIJob, phase aiplatformv1alpha1.AIJobPhase) {
	w.t.Helper()
	w.await("the job being "+string(phase), func(ctx context.Context) (bool, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return false, err
		}
		if job.Status.Phase != phase {
			return false, fmt.Errorf("it is %s for %s: %s", job.Status.Phase, job.Status.Reason, job.Status.Message)
		}
		return true, nil
	})
}
