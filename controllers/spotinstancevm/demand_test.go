package spotinstancevm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// noon is when plans are made in tests.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// aPod is a pod of replica 0 of the SpotInstanceJob bert.
func aPod(name string, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Labels: map[string]string{
		spotv1alpha1.LabelSpotInstanceVM: "t4", spotv1alpha1.LabelSpotInstanceJob: "bert", spotv1alpha1.LabelReplica: "0",
	}}}
	pod.Status.Phase = corev1.PodPending
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func refused(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
}

func on(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodRunning }
}

func replica(index string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[spotv1alpha1.LabelReplica] = index }
}

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: noon} }

func succeeded(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }

func jobless(pod *corev1.Pod) {
	pod.Labels = map[string]string{spotv1alpha1.LabelSpotInstanceVM: "t4"}
}

func ofTrainingJob(index string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels = map[string]string{
			spotv1alpha1.LabelSpotInstanceVM: "t4", mlv1.LabelTrainingJob: "llama", "batch.kubernetes.io/job-completion-index": index,
		}
	}
}

// aNode that is Ready.
func aNode(name string, edits ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon), Labels: map[string]string{
		spotv1alpha1.LabelSpotInstanceVM: "t4", spotv1alpha1.LabelSpotInstanceVMNamespace: "team",
	}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Allocatable = allocatable("4", "14Gi")
	for _, edit := range edits {
		edit(node)
	}
	return node
}

func noticed(node *corev1.Node) {
	node.Annotations = map[string]string{
		spotv1alpha1.AnnotationPreemptionNotice: noon.Add(-time.Second).Format(time.RFC3339Nano),
		spotv1alpha1.AnnotationPreemptionSource: "MetadataServer",
	}
}

func TestDemandCountsEachPlaceOnce(t *testing.T) {
	nodes := map[string]*corev1.Node{"good": aNode("good"), "going": aNode("going", noticed)}
	tests := map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"no pods":                  {},
		"a pod that finds no room": {[]*corev1.Pod{aPod("a", refused)}, []string{"a"}},
		"a pod that the scheduler has not looked at": {[]*corev1.Pod{aPod("a")}, nil},
		"a pod that runs":                             {[]*corev1.Pod{aPod("a", on("good"))}, nil},
		"a pod on a node that goes, at once":          {[]*corev1.Pod{aPod("a", on("going"))}, []string{"a"}},
		"its successor replaces it":                   {[]*corev1.Pod{aPod("a", on("going")), aPod("b", refused)}, []string{"b"}},
		"also while the lost one ends":                {[]*corev1.Pod{aPod("a", on("going"), terminating), aPod("b", refused)}, []string{"b"}},
		"a lost one that ends asks for nothing":       {[]*corev1.Pod{aPod("a", on("going"), terminating)}, nil},
		"a successor that runs elsewhere":             {[]*corev1.Pod{aPod("a", on("going")), aPod("b", on("good"))}, nil},
		"a successor that the scheduler has not seen": {[]*corev1.Pod{aPod("a", on("going")), aPod("b")}, []string{"a"}},
		"replicas are places of their own":            {[]*corev1.Pod{aPod("a", on("going")), aPod("b", refused, replica("1"))}, []string{"a", "b"}},
		"a pod that has ended":                        {[]*corev1.Pod{aPod("a", on("going"), succeeded), aPod("b", refused, succeeded)}, nil},
		"pods of no job are places of their own":      {[]*corev1.Pod{aPod("a", refused, jobless), aPod("b", refused, jobless)}, []string{"a", "b"}},
		"workers of a TrainingJob by their index": {
			[]*corev1.Pod{
				aPod("a", on("going"), ofTrainingJob("0")), aPod("b", refused, ofTrainingJob("0")), aPod("c", on("going"), ofTrainingJob("1")),
			}, []string{"b", "c"},
		},
		"pods of a replica without an index all count when they wait": {
			[]*corev1.Pod{aPod("a", refused), aPod("b", refused), aPod("c", on("going"))}, []string{"a", "b"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, pod := range demandOf(test.pods, nodes, noon) {
				got = append(got, pod.Name)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestDemandKnowsTheJobAndWhetherTheSchedulerWasAsked(t *testing.T) {
	nodes := map[string]*corev1.Node{"going": aNode("going", noticed)}
	got := demandOf([]*corev1.Pod{aPod("a", on("going"), ofTrainingJob("0")), aPod("b", refused)}, nodes, noon)
	assert.Equal(t, "TrainingJob/llama", got[0].Job)
	assert.False(t, got[0].Refused)
	assert.Equal(t, "SpotInstanceJob/bert", got[1].Job)
	assert.True(t, got[1].Refused)
}
