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
func (s *Service) watch(ctx context.Context, object client.Object, set func(client.Object) bool, drop func(client.Object) bool) error {
	informer, err := s.mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(true))
	if err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	registration, err := informer.AddEventHandler(s.handler(
		func(o any) bool { return set(o.(client.Object)) }, func(o any) bool { return drop(o.(client.Object)) }))
	if err != nil {
		return fmt.Errorf("watch %T: %w", object, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	return nil
}

func (s *Service) handler(set, drop func(any) bool) toolscache.ResourceEventHandler {
	with := func(do func(any) bool, object any) {
		s.mutex.Lock()
		counts := do(object)
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

// watchJobs follows jobs, queues and clusters.
func (s *Service) watchJobs(ctx context.Context) error {
	for _, kind := range s.sources {
		if err := s.watch(ctx, kind.Object, func(o client.Object) bool { return s.setJob(kind, o) }, s.dropJob); err != nil {
			return err
		}
	}
	if err := follow(ctx, s, &aiplatformv1alpha1.AIJobQueue{}, s.model.queues); err != nil {
		return err
	}
	return follow(ctx, s, &aiplatformv1alpha1.ComputeCluster{}, s.model.clusters)
}

// follow keeps the objects of a kind, by their names.
func follow[T client.Object](ctx context.Context, s *Service, kind T, known map[string]T) error {
	return s.watch(ctx, kind, func(o client.Object) bool {
		known[o.GetName()] = o.(T)
		return true
	}, func(o client.Object) bool {
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
	err := s.watch(ctx, &corev1.Node{}, func(o client.Object) bool {
		changed := s.model.setNode(nodeOf(o.(*corev1.Node)))
		if changed {
			s.tellClusters()
		}
		return changed
	}, func(o client.Object) bool {
		s.model.dropNode(o.GetName())
		s.tellClusters()
		return true
	})
	if err != nil {
		return err
	}
	return watchPods(ctx, s.mgr, s.handler(func(o any) bool {
		p := o.(*pod)
		changed := s.model.setPod(p)
		if changed && p.requests.GPUs > 0 {
			s.tellClusters()
		}
		return changed
	}, func(o any) bool {
		p := o.(*pod)
		s.model.dropPod(p.UID)
		if p.requests.GPUs > 0 {
			s.tellClusters()
		}
		return true
	}))
}
