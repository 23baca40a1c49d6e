package trainingjob

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/gang"
	"github.com/dcnlab/spot-training-operator/internal/child"
)

// childKind is a row of the table of what belongs to a job.
type childKind struct {
	// empty is an object of the kind.
	empty client.Object
	name  func(*mlv1.TrainingJob) string
	build func(*observed) client.Object
	// isWanted says whether the job should have the child; nil: every job.
	isWanted func(*observed) bool
	// first says that pods wait for the child: in a burst of new jobs all jobs get these before any job gets the rest.
	first bool
	// stays says that the cleanup policy All does not delete it.
	stays bool
}

var childKinds = []childKind{
	{
		empty: &corev1.ServiceAccount{}, name: build.ServiceAccountName, first: true, stays: true,
		build:    func(o *observed) client.Object { return build.ServiceAccount(o.job) },
		isWanted: func(o *observed) bool { return o.job.Spec.ServiceAccountName == "" },
	},
	{
		empty: &corev1.PersistentVolumeClaim{}, name: build.ClaimName, first: true, stays: true,
		build:    func(o *observed) client.Object { return build.Claim(o.job) },
		isWanted: func(o *observed) bool { return build.CreatesClaim(o.job) },
	},
	{
		empty: &networkingv1.NetworkPolicy{}, name: build.PolicyName, first: true,
		build:    func(o *observed) client.Object { return build.NetworkPolicy(o.job, o.settings) },
		isWanted: (*observed).isIsolated,
	},
	{empty: &batchv1.Job{}, name: build.WorkersName, first: true, build: (*observed).buildWorkers},
	{empty: &corev1.ConfigMap{}, name: build.ConfigName, build: func(o *observed) client.Object { return build.ConfigMap(o.job) }},
	{empty: &corev1.Service{}, name: build.HeadlessName, build: func(o *observed) client.Object { return build.HeadlessService(o.job) }},
	{empty: &corev1.Service{}, name: build.MasterName, build: func(o *observed) client.Object { return build.MasterService(o.job) }},
	{
		empty: &corev1.Service{}, name: build.TensorBoardName,
		build:    func(o *observed) client.Object { return build.TensorBoardService(o.job) },
		isWanted: func(o *observed) bool { return build.TensorBoardEnabled(o.job) },
	},
}

// Children are all objects that a new job gets. The admission webhooks ask the cluster about them before the job is
// stored. The job has the defaults of the API server.
func Children(job *mlv1.TrainingJob, settings build.Settings) []client.Object {
	job = job.DeepCopy()
	job.Status.DefaultResources = settings.DefaultResources.For(job.Spec.Resources)
	o := observed{job: job, settings: settings}
	return o.wanted(false)
}

// wanted are the children that the job should have, or only those that its pods wait for.
func (o *observed) wanted(first bool) []client.Object {
	var list []client.Object
	for _, kind := range childKinds {
		if (first && !kind.first) || (kind.isWanted != nil && !kind.isWanted(o)) {
			continue
		}
		list = append(list, kind.build(o))
	}
	return list
}

// isIsolated says whether the job should have a NetworkPolicy now. Workers that run without one get it only when the job itself asks for it: what
// connects to them might rely on that. Else it comes with their next start.
func (o *observed) isIsolated() bool {
	if o.workers != nil && o.job.Spec.Networking.Isolation == "" {
		return build.WasIsolated(o.workers)
	}
	return build.IsIsolated(o.job, o.settings)
}

// buildWorkers builds the Job of the present attempt, or of the next one while there is none.
func (o *observed) buildWorkers() client.Object {
	attempt := o.job.Status.RestartCount
	if o.workers != nil {
		attempt = build.AttemptOf(o.workers)
	}
	workers := build.Workers(build.ResolveResume(o.job, o.resume), o.settings, attempt)
	if o.gang.version != "" {
		gang.Join(workers, o.gang.scheduler)
	}
	o.joinQueue(workers)
	return workers
}

// of is an empty object with the name of the job's child.
func (k *childKind) of(job *mlv1.TrainingJob) client.Object {
	object := k.empty.DeepCopyObject().(client.Object)
	object.SetName(k.name(job))
	return object
}

// childKey identifies a child of a job.
func childKey(object client.Object) string { return fmt.Sprintf("%T/%s", object, object.GetName()) }

// observeChildren reads the children from the cache. They are not copied: nothing changes them.
func (r *Reconciler) observeChildren(ctx context.Context, o *observed) error {
	o.children = map[string]client.Object{}
	for _, kind := range childKinds {
		object := kind.of(o.job)
		key := client.ObjectKey{Namespace: o.job.Namespace, Name: object.GetName()}
		found, err := child.Find(ctx, r, key, object, client.UnsafeDisableDeepCopy)
		if err != nil {
			return err
		}
		_, claim := object.(*corev1.PersistentVolumeClaim) // may outlive its job
		if found && (metav1.IsControlledBy(object, o.job) || claim && build.CreatesClaim(o.job)) {
			o.children[childKey(object)] = object
		}
	}
	o.workers, _ = o.children[childKey(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: build.WorkersName(o.job)}})].(*batchv1.Job)
	return nil
}

// lacksServices says whether the workers exist and what they do not wait for does not.
func (o *observed) lacksServices() bool {
	if o.workers == nil {
		return false
	}
	return slices.ContainsFunc(childKinds, func(kind childKind) bool {
		return !kind.first && kind.isWanted == nil && o.children[childKey(kind.of(o.job))] == nil
	})
}

// cleanUp deletes the children that cleanupPolicy All deletes.
func (p *planner) cleanUp() {
	for _, kind := range childKinds {
		if live := p.children[childKey(kind.of(p.job))]; live != nil && !kind.stays {
			p.remove(live)
		}
	}
}

// distinctKinds are empty objects of the kinds of children, each kind once.
func distinctKinds() []client.Object {
	var list []client.Object
	for _, kind := range childKinds {
		if !slices.ContainsFunc(list, func(o client.Object) bool { return reflect.TypeOf(o) == reflect.TypeOf(kind.empty) }) {
			list = append(list, kind.empty)
		}
	}
	return list
}
