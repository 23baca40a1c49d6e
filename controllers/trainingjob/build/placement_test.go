package build

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// The taint of a notice does not keep workers off that tolerate all taints.
func TestWorkersThatTolerateAllTaintsAvoidNodesWithANotice(t *testing.T) {
	avoids := corev1.NodeSelectorRequirement{Key: "training.dcnlab.com/preemption", Operator: corev1.NodeSelectorOpDoesNotExist}
	inZone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	wish := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{inZone}}},
	}}}
	for name, test := range map[string]struct {
		toleration corev1.Toleration
		affinity   *corev1.Affinity
		want       []corev1.NodeSelectorRequirement
	}{
		"all taints": {corev1.Toleration{Operator: corev1.TolerationOpExists}, nil, []corev1.NodeSelectorRequirement{avoids}},
		"all that keep new pods off": {
			corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, nil, []corev1.NodeSelectorRequirement{avoids},
		},
		"all taints, with an affinity": {
			corev1.Toleration{Operator: corev1.TolerationOpExists}, wish, []corev1.NodeSelectorRequirement{inZone, avoids},
		},
		"all that evict":        {corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, nil, nil},
		"one taint":             {corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}, nil, nil},
		"the taint of a notice": {corev1.Toleration{Key: "training.dcnlab.com/preemption", Operator: corev1.TolerationOpExists}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			job := builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) {
				s.Scheduling = &mlv1.Scheduling{Tolerations: []corev1.Toleration{test.toleration}, Affinity: test.affinity.DeepCopy()}
			}).Obj()
			pod := PodSpec(job, Settings{})
			assert.Equal(t, test.affinity, job.Spec.Scheduling.Affinity, "the spec is not changed")
			if test.want == nil {
				assert.Nil(t, pod.Affinity)
				return
			}
			terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			assert.Equal(t, []corev1.NodeSelectorTerm{{MatchExpressions: test.want}}, terms)
		})
	}
}
