package workerpool

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
)

// answer is what is known of a queue's tasks.
type answer struct {
	// asked says whether the job service was asked at all since this manager began.
	asked bool
	// problem is why it does not say; empty: it does.
	problem string
	figures Figures
}

// memory is what the controller keeps of a queue between reconciliations.
type memory struct {
	of      types.UID // the queue
	known   bool
	scaling scaling
	// deployment is as it was written last, with the generation that it got.
	deployment *appsv1.Deployment
	generation int64
	// rights are those that were written last, for the queue's generation.
	rightsOf int64
	// bundle is what the ConfigMap of authorities was written with.
	bundle string
	// reported is when the status was written last.
	reported time.Time
}

// observed is all that a plan depends on.
type observed struct {
	queue *aiplatformv1alpha1.AIJobQueue
	// deployments that the queue owns, in whatever namespace.
	deployments []*appsv1.Deployment
	// pods of the Deployment, read only when not all are ready.
	pods   []*corev1.Pod
	answer answer
	trust  trust
	memory memory
	now    time.Time
}

// trust is what the workers know the job service by.
type trust struct {
	// bundle of certificates, beside those of the system.
	bundle string
	// known says whether the bundle is, changes whether it can become another.
	known, changes bool
}

// desired is what should be done.
type desired struct {
	// remove are Deployments that should not be.
	remove []*appsv1.Deployment
	// removeRights says that what let the workers take tasks should go, too.
	removeRights bool
	// deployment to write; nil: it is as it should be.
	deployment *appsv1.Deployment
	// scaling is to be remembered.
	scaling scaling
	status  poolStatus
	// again is when to look once more although nothing changes; 0: never.
	again time.Duration
}

// poolStatus is this controller's part of the queue's status; without figures there is none.
type poolStatus struct {
	workers   *aiplatformv1alpha1.WorkerPoolStatus
	condition *metav1.Condition
}

func plan(o observed, s Settings) desired {
	if o.queue.Spec.Workers == nil {
		return desired{remove: o.deployments, removeRights: len(o.deployments) > 0 || o.queue.Status.Workers != nil}
	}
	var d desired
	var existing *appsv1.Deployment
	for _, one := range o.deployments {
		if one.Namespace == s.namespaceOf(o.queue.Spec.Workers) {
			existing = one
			continue
		}
		d.remove = append(d.remove, one)
	}
	d.scaling = o.memory.scaling
	if !o.memory.known && existing != nil {
		d.scaling = scaling{replicas: ptr.Deref(existing.Spec.Replicas, 0)}
	}
	l := limitsOf(o.queue.Spec.Workers)
	if o.answer.asked && o.answer.problem == "" {
		d.scaling, d.again = d.scaling.next(l, o.answer.figures, o.now)
	} else {
		d.scaling = d.scaling.unknown(l)
	}
	wanted := deployment(o.queue, d.scaling.replicas, s, o.trust)
	switch {
	case !o.trust.known: // workers could reach nothing, and would be replaced as soon as it is
		d.again = reconciling.Sooner(d.again, unknownInterval)
	case existing == nil || existing.DeletionTimestamp == nil && !isUpToDate(existing, wanted, o.memory):
		d.deployment = wanted
	}
	if o.trust.changes {
		d.again = reconciling.Sooner(d.again, authoritiesInterval)
	}
	d.status = status(o, existing, d.scaling.replicas)
	// What keeps a pod from being ready changes nothing in the Deployment, and pods are not watched.
	if existing != nil && existing.Status.ReadyReplicas < d.scaling.replicas {
		d.again = reconciling.Sooner(d.again, podsInterval)
	}
	return d
}

// isUpToDate says whether the Deployment is unchanged since this manager wrote it. The fields that were written cannot be told from those
// that the API server fills in, so that a manager that has just started writes once; that changes nothing when all is as it was.
func isUpToDate(existing, wanted *appsv1.Deployment, m memory) bool {
	return m.deployment != nil && existing.Generation == m.generation &&
		equality.Semantic.DeepEqual(wanted, m.deployment) &&
		equality.Semantic.DeepDerivative(wanted.Labels, existing.Labels) &&
		equality.Semantic.DeepEqual(wanted.OwnerReferences, existing.OwnerReferences)
}
