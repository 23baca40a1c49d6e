package aijob

import (
	corev1 "k8s.io/api/core/v1"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// followSource writes down the code that the pods were started with first. One with other code, which cannot happen but to a ConfigMap that
// changed in between, is a failure.
func (p *planner) followSource(status *aiplatformv1alpha1.AIJobStatus, members []*corev1.Pod) *failure {
	for _, pod := range members {
		if pod == nil {
			continue
		}
		fetched := source.Fetched(pod, p.job.Spec.Source)
		if fetched == nil {
			continue
		}
		if message := source.Differs(status.Source, fetched, podend.InWords(pod)); message != "" {
			return &failure{kind: hopeless, reason: reasons.SourceChanged, message: message}
		}
		if status.Source == nil || status.Source.From != fetched.From {
			status.Source = fetched
		}
	}
	return nil
}
