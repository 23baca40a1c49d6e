package trainingjob

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

// PodsWithoutPlace are the pods that a job is going to have once its AIJobQueue admits it, when all that it waits for is room for
// them. The SpotInstanceVM that the job names can make the room; without one there are none. Since the pods do not exist, they were
// created when the job was queued.
func PodsWithoutPlace(job *mlv1.TrainingJob, settings build.Settings) []*corev1.Pod {
	if build.SpotName(job) == "" || admissionState(job) != queueing.Waiting || !lacksRoom(job) {
		return nil
	}
	template := build.Workers(job, settings, 0).Spec.Template
	spec := queueing.LimitsAsRequests(&template.Spec)
	var pods []*corev1.Pod
	for index := range job.Spec.NumWorkers {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *spec}
		pod.Namespace, pod.Name = job.Namespace, fmt.Sprintf("%s-%d", build.WorkersName(job), index)
		pod.CreationTimestamp = job.CreationTimestamp
		if queued := job.Status.Admission.QueuedTime; queued != nil {
			pod.CreationTimestamp = *queued
		}
		pods = append(pods, pod)
	}
	return pods
}

// lacksRoom says whether the queue does not admit a job because its pods find no room.
func lacksRoom(job *mlv1.TrainingJob) bool {
	admitted := meta.FindStatusCondition(job.Status.Conditions, reasons.ConditionAdmitted)
	return admitted != nil && admitted.Status == metav1.ConditionFalse && admitted.Reason == reasons.InsufficientCapacity
}

// describeCapacity says what a SpotInstanceVM does about what a job waits for in its queue; empty when it has nothing to do with it.
func (o *observed) describeCapacity(reason string) string {
	if build.SpotName(o.job) == "" || reason != reasons.InsufficientCapacity {
		return ""
	}
	_, _, message := o.spotCapacity()
	return "; " + message
}
