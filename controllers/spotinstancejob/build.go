package spotinstancejob

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// unusable are the checkpoints from which no attempt of a replica could be started.
func unusable(job *batchv1.Job) []string {
	if job == nil || job.Annotations[annotationUnusable] == "" {
		return nil
	}
	return strings.Split(job.Annotations[annotationUnusable], ",")
}

// buildNext is the Job of the next attempt of a replica. It takes along from the last what must not be forgotten.
func (p *planner) buildNext(r *replica, result outcome) *batchv1.Job {
	failures, bad := int32(0), unusable(r.current)
	if r.current != nil {
		failures = failuresBefore(r.current)
		if result.kind == failed && r.retiredFor() == "" {
			failures++
		}
		from := r.current.Annotations[annotationStartedFrom]
		if from != "" && (r.retiredFor() == retiredUnstartable || (result.kind == failed && result.badStart)) {
			bad = append(bad, from)
		}
	}
	return buildJob(p.job, r.index, r.attempts, p.newest(bad), failures, bad)
}

// Replica is the Job of the first replica of a new SpotInstanceJob.
func Replica(job *spotv1alpha1.SpotInstanceJob) *batchv1.Job {
	return buildJob(job, 0, 0, origin{}, 0, nil)
}

func buildJob(job *spotv1alpha1.SpotInstanceJob, index int, attempt int32, from origin, failures int32, bad []string) *batchv1.Job {
	template := job.Spec.JobTemplate.DeepCopy()
	own := labelsOf(job, index)
	annotations := map[string]string{
		annotationFailures: strconv.Itoa(int(failures)), annotationStartedFrom: from.name, labelTrained: strconv.Itoa(int(from.trained)),
		annotationUnusable: strings.Join(bad, ","),
	}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" || value == "0" })
	annotations[annotationAttempt] = strconv.Itoa(int(attempt))
	built := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: jobName(job.Name, index, attempt), Namespace: job.Namespace,
			Labels: labels.Merge(template.Labels, own), Annotations: labels.Merge(template.Annotations, annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, spotv1alpha1.GroupVersion.WithKind(kindSpotInstanceJob))},
		},
		Spec: template.Spec,
	}
	spec := &built.Spec
	// A pod that is being stopped, perhaps on a node that no longer answers, must have ended before another starts.
	spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	// Jobs are removed when the whole has ended; until then they hold what is known of the replica.
	spec.TTLSecondsAfterFinished = nil
	if isRestartedByOperator(job) {
		spec.BackoffLimit = ptr.To[int32](0)
	}
	endOnDisruption(job, spec)
	spec.Template.Labels = labels.Merge(spec.Template.Labels, own)
	spread(job, index, &spec.Template.Spec)
	addStorage(job, index, &spec.Template.Spec)
	startFrom(job, from, &spec.Template.Spec)
	return built
}

func labelsOf(job *spotv1alpha1.SpotInstanceJob, index int) map[string]string {
	labels := map[string]string{spotv1alpha1.LabelSpotInstanceJob: job.Name, spotv1alpha1.LabelReplica: strconv.Itoa(index)}
	if ref := job.Spec.SpotInstanceVMRef; ref != nil {
		labels[spotv1alpha1.LabelSpotInstanceVM] = ref.Name
	}
	return labels
}

// maxRules is how many rules a pod failure policy may have.
const maxRules = 20

// endOnDisruption has a Job end when its pod is taken away, so that the next attempt starts from the newest checkpoint and
// the loss does not count against backoffLimit. The pods of a replica of several are replaced one by one, without
// counting.
func endOnDisruption(job *spotv1alpha1.SpotInstanceJob, spec *batchv1.JobSpec) {
	if spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return
	}
	rule := batchv1.PodFailurePolicyRule{
		Action: batchv1.PodFailurePolicyActionFailJob,
		OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
		},
	}
	if !job.HasOnePod() {
		if spec.PodFailurePolicy != nil {
			return
		}
		rule.Action = batchv1.PodFailurePolicyActionIgnore
	}
	spec.PodFailurePolicy = cmp.Or(spec.PodFailurePolicy, &batchv1.PodFailurePolicy{})
	if len(spec.PodFailurePolicy.Rules) < maxRules {
		spec.PodFailurePolicy.Rules = slices.Insert(spec.PodFailurePolicy.Rules, 0, rule)
	}
}

// spread keeps replicas on nodes of their own, unless the template says itself how its pods are placed. Where instances
// can be created, a replica rather waits for one; elsewhere it takes what there is.
func spread(job *spotv1alpha1.SpotInstanceJob, index int, pod *corev1.PodSpec) {
	if pod.Affinity != nil && pod.Affinity.PodAntiAffinity != nil || len(pod.TopologySpreadConstraints) > 0 {
		return
	}
	term := corev1.PodAffinityTerm{
		TopologyKey: corev1.LabelHostname,
		LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{spotv1alpha1.LabelSpotInstanceJob: job.Name},
			MatchExpressions: []metav1.LabelSelectorRequirement{{
				Key: spotv1alpha1.LabelReplica, Operator: metav1.LabelSelectorOpNotIn, Values: []string{strconv.Itoa(index)},
			}},
		},
	}
	pod.Affinity = cmp.Or(pod.Affinity, &corev1.Affinity{})
	if job.Spec.SpotInstanceVMRef != nil {
		pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
		}
		return
	}
	pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}},
	}
}
