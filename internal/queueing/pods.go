package queueing

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

// jobName tells a job from others that exist at the same time.
type jobName struct{ kind, namespace, name string }

// jobLabels are the labels by which the pods of a kind of job name their job.
var jobLabels = map[string]string{aiplatformv1alpha1.LabelAIJob: "AIJob", mlv1.LabelTrainingJob: "TrainingJob"}

// pod is what counts of a pod that is bound to a node and has not ended. Of the tens of thousands of pods of a large cluster
// nothing else is kept in memory: less than a kilobyte each.
type pod struct {
	metav1.ObjectMeta
	node     string
	job      jobName // of none when it is zero
	requests scheduler.Resources
}

// barePod keeps of a pod what counts.
func barePod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	bare := &pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		node: p.Spec.NodeName, requests: RequestsOf(&p.Spec),
	}
	// A user's own pod with the label of a job has no owner that creates pods for jobs.
	if metav1.GetControllerOf(p) != nil {
		for label, kind := range jobLabels {
			if name := p.Labels[label]; name != "" {
				bare.job = jobName{kind, p.Namespace, name}
			}
		}
	}
	return bare, nil
}

// boundPods selects, at the API server, the pods that take room on a node.
func boundPods() fields.Selector {
	return fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
}

// watchPods tells the handler of all bound pods, as *pod, until the context ends. It returns once those that there are have
// been told. The manager's own cache holds the pods of jobs only, and not what they request.
func watchPods(ctx context.Context, mgr ctrl.Manager, handler toolscache.ResourceEventHandler) error {
	rest, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("Pod"), false, false, mgr.GetConfig(),
		serializer.NewCodecFactory(mgr.GetScheme()), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make the client that watches pods: %w", err)
	}
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.NewListWatchFromClient(rest, "pods", metav1.NamespaceAll, boundPods()),
		ObjectType:    &corev1.Pod{}, Handler: handler, Transform: barePod,
	})
	go informer.RunWithContext(ctx)
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}
