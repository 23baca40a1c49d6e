// Package child creates, checks, changes, deletes and caches the objects that a controller makes for those of its kind. The manager's own
// cache has those of TrainingJobs only, by another label.
package child

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// Options of a cache.
type Options struct {
	// Label that every child has.
	Label string
	// Namespaces to watch; all when it is empty.
	Namespaces []string
	// Kinds of the children, each with what strips an object, before it enters the cache, of all that is not read.
	Kinds map[client.Object]toolscache.TransformFunc
}

// New returns a cache, which the manager starts with its own, before any controller, and a client that reads from it and writes to
// the API server. Indices may be added until the manager starts.
func New(mgr ctrl.Manager, options Options) (children cache.Cache, through client.Client, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cache objects with the label %s: %w", options.Label, err)
		}
	}()
	selector, err := labels.Parse(options.Label)
	if err != nil {
		return nil, nil, err
	}
	namespaces := map[string]cache.Config{}
	for _, namespace := range options.Namespaces {
		namespaces[namespace] = cache.Config{}
	}
	kinds := map[client.Object]cache.ByObject{}
	for kind, bare := range options.Kinds {
		kinds[kind] = cache.ByObject{Label: selector, Transform: bare}
	}
	children, err = cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultNamespaces: namespaces,
		ByObject: kinds,
	})
	if err != nil {
		return nil, nil, err
	}
	if err := mgr.Add(runnable{children}); err != nil {
		return nil, nil, err
	}
	through, err = client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: children, EnableReadYourWritesConsistency: ptr.To(true)},
	})
	return children, through, err
}

type runnable struct{ cache.Cache }

// GetCache has the manager start it with its own cache.
func (r runnable) GetCache() cache.Cache { return r.Cache }

// Keep says what a cache keeps of pods. With thousands of pods most of the manager's memory would be what it never reads.
type Keep struct {
	// Annotations that are read.
	Annotations []string
	// Init says whether the status of init containers is read.
	Init bool
	// Scheduled says whether it is read when a pod got its node. That a pod gets none always is.
	Scheduled bool
	// Readiness says whether it is read whether pods and containers are ready, and the pod's IP.
	Readiness bool
}

// jobTracking is the one finalizer that is kept: as long as a pod has it, its Job has not counted the end of the pod.
var jobTracking = []string{batchv1.JobTrackingFinalizer}

// Pods strips a pod of what is not kept: all of its spec but the deadline and the node or, as long as it has none, the scheduler.
func (k Keep) Pods() toolscache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return object, nil
		}
		StripMeta(&pod.ObjectMeta, k.Annotations...)
		tracked := slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
		if pod.Finalizers = jobTracking; !tracked {
			pod.Finalizers = nil
		}
		spec := corev1.PodSpec{NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, ActiveDeadlineSeconds: pod.Spec.ActiveDeadlineSeconds}
		if pod.Spec = spec; pod.Spec.NodeName != "" {
			pod.Spec.SchedulerName = ""
		}
		pod.Status = k.status(&pod.Status)
		return pod, nil
	}
}

func (k Keep) status(full *corev1.PodStatus) corev1.PodStatus {
	kept := corev1.PodStatus{Phase: podend.Phase(full), Reason: full.Reason, Message: full.Message, StartTime: full.StartTime}
	if k.Readiness {
		kept.PodIP = full.PodIP
	}
	for _, condition := range full.Conditions {
		switch condition.Type {
		case corev1.DisruptionTarget, podend.ConditionEnded:
		case corev1.PodReady:
			if !k.Readiness {
				continue
			}
		case corev1.PodScheduled:
			if condition.Status == corev1.ConditionTrue && !k.Scheduled {
				continue
			}
		default:
			continue
		}
		kept.Conditions = append(kept.Conditions, condition)
	}
	kept.ContainerStatuses = k.containers(full.ContainerStatuses)
	if k.Init {
		kept.InitContainerStatuses = k.containers(full.InitContainerStatuses)
	}
	return kept
}

func (k Keep) containers(full []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range full {
		status := corev1.ContainerStatus{Name: full[i].Name, Image: full[i].Image, State: full[i].State}
		if k.Readiness {
			status.Ready = full[i].Ready
		}
		kept = append(kept, status)
	}
	return kept
}

// StripMeta removes managed fields and all annotations but those that are kept.
func StripMeta(meta *metav1.ObjectMeta, annotations ...string) {
	meta.ManagedFields = nil
	kept := map[string]string{}
	for _, name := range annotations {
		if value, ok := meta.Annotations[name]; ok {
			kept[name] = value
		}
	}
	meta.Annotations = nil
	if len(kept) > 0 {
		meta.Annotations = kept
	}
}

// Uncached returns a client that reads from the API server, for kinds that the manager's own client would make a cache of.
func Uncached(mgr ctrl.Manager) (client.Client, error) {
	uncached, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("set up a client without a cache: %w", err)
	}
	return uncached, nil
}
