package trainingjob

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// endOutlived has the pods end whose worker has ended while containers go on that a webhook has added. Pods whose worker succeeded wait until
// the training is done: where such a container ends with another exit code than 0, the kubelet reports the pod as failed after all, for
// which the Job controller would stop the others.
func (p *planner) endOutlived() {
	p.outlived = podend.OutlivedOf(p.pods, corev1.RestartPolicyNever, build.WorkerContainer)
	if p.workers == nil || !areDone(p.workers, p.workerPods(), workerSucceeded) {
		p.outlived = slices.DeleteFunc(p.outlived, func(pod podend.Outlived) bool { return pod.Phase == corev1.PodSucceeded && !pod.IsReported() })
	}
	if len(p.outlived) > 0 {
		p.lookAgain(podend.LookAgain)
	}
}

func workerSucceeded(pod *corev1.Pod) bool {
	ended := workerProgram.Terminated(pod)
	return ended != nil && ended.ExitCode == 0
}
