package aijob

import (
	corev1 "k8s.io/api/core/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// followSource writes down the code that the pods were started with first. A pod with other code is a failure.
func (p *planner) followSource(status *aiplatformv1alpha1.AIJobStatus, members []*corev1.Pod) *failure {
	is, other, message := source.Follow(p.job.Spec.Source, status.Source, members, podend.InWords)
	if status.Source = is; other == nil {
		return nil
	}
	return &failure{kind: hopeless, reason: reasons.SourceChanged, message: message}
}
