package queueing

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// watch calls set for every object of a kind that comes or changes, and drop for those that go, both with the model locked,
// and rouses when they say that something counts. It returns once the objects that there are have been told.
func watch[T client.Object](ctx context.Context, s *Service, kind T, set, drop func(T) bool) error {
	informer, err := s.mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(true))
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(handler(s, set, drop))
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	return nil
}

func handler[T any](s *Service, set, drop func(T) bool) toolscache.ResourceEventHandler {
	with := func(do func(T) bool, object any) {
		s.mutex.Lock()
		counts := do(object.(T))
		s.mutex.Unlock()
		if counts {
			s.rouse()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { with(set, o) },
		UpdateFunc: func(_, o any) { with(set, o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if o != nil {
				with(drop, o)
			}
		},
	}
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list;watch

// watchJobs follows jobs, and what they name: queues, clusters and their namespaces.
func (s *Service) watchJobs(ctx context.Context) error {
	for _, kind := range s.sources {
		if err := watch(ctx, s, kind.Object, func(o client.Object) bool { return s.setJob(kind, o) }, s.dropJob); err != nil {
			return err
		}
	}
	if err := follow(ctx, s, &aiplatformv1alpha1.AIJobQueue{}, s.model.queues); err != nil {
		return err
	}
	if err := follow(ctx, s, &aiplatformv1alpha1.ComputeCluster{}, s.model.clusters); err != nil {
		return err
	}
	return follow(ctx, s, &corev1.Namespace{}, s.model.namespaces)
}

// follow keeps the objects of a kind, by their names.
func follow[T client.Object](ctx context.Context, s *Service, kind T, known map[string]T) error {
	return watch(ctx, s, kind, func(o T) bool {
		known[o.GetName()] = o
		return true
	}, func(o T) bool {
		delete(known, o.GetName())
		return true
	})
}

func (s *Service) setJob(kind *Source, object client.Object) bool {
	is, state := kind.Job(object)
	is.Kind, is.UID, is.Namespace, is.Name = kind.Kind, object.GetUID(), object.GetNamespace(), object.GetName()
	left := ""
	if was := s.model.jobs[is.UID]; was != nil {
		left = was.Queue
	}
	changed, j := s.model.setJob(kind, is, state, object.GetResourceVersion())
	if j != nil && j.ask {
		j.ask = false
		s.notifierOf(kind.Kind).tell(j.Namespace, j.Name)
	}
	if changed {
		s.tellFigures(j)
	}
	if left != "" && left != is.Queue {
		s.changes[KindQueue].tell("", left)
	}
	return changed
}

func (s *Service) dropJob(object client.Object) bool {
	j := s.model.jobs[object.GetUID()]
	if j == nil {
		return false
	}
	s.model.dropJob(j.UID)
	s.tellFigures(j)
	return true
}

// watchRoom follows nodes and pods.
func (s *Service) watchRoom(ctx context.Context) error {
	err := watch(ctx, s, &corev1.Node{}, func(node *corev1.Node) bool {
		changed := s.model.setNode(nodeOf(node))
		if changed {
			s.tellClusters()
		}
		return changed
	}, func(node *corev1.Node) bool {
		s.model.dropNode(node.Name)
		s.tellClusters()
		return true
	})
	if err != nil {
		return err
	}
	return watchPods(ctx, s.mgr, handler(s, func(p *pod) bool {
		changed := s.model.setPod(p)
		if changed && p.requests.GPUs > 0 {
			s.tellClusters()
		}
		return changed
	}, func(p *pod) bool {
		s.model.dropPod(p.UID)
		if p.requests.GPUs > 0 {
			s.tellClusters()
		}
		return true
	}))
}
