package spotinstancejob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/reconciling"
	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

// observed is all that a plan is made from.
type observed struct {
	now time.Time
	job *spotv1alpha1.SpotInstanceJob

	jobs    []*batchv1.Job // of this job, those that are being deleted too
	hidden  []*batchv1.Job // of this job, without the labels by which the cache finds them
	pods    []*corev1.Pod  // with its label, also of an earlier job of its name
	nodes   map[string]*node
	vm      *spotv1alpha1.SpotInstanceVM // that the job names; nil when it does not exist
	backups []checkpointbackup.Backup
	served  bool // whether the cluster serves CheckpointBackups

	// secretProblem says which Secret is missing, and what to do; empty when none is, or none was looked for.
	secretProblem string
}

// node is what is known of a node with pods of the job.
type node struct {
	gone         bool
	ready        bool
	outOfService bool
	notice       *nodenotice.Notice
}

// observe reads from the caches what exists of a job. A node that is not there and Secrets are asked for at the API
// server: these only when a replica is to be started.
func (r *Reconciler) observe(ctx context.Context, job *spotv1alpha1.SpotInstanceJob) (observed, error) {
	o := observed{now: r.Clock.Now(), job: job}
	ours := []client.ListOption{
		client.InNamespace(job.Namespace), client.MatchingLabels{spotv1alpha1.LabelSpotInstanceJob: job.Name},
	}
	var err error
	if o.jobs, err = reconciling.List[*batchv1.Job](ctx, r.children.Client, &batchv1.JobList{}, ours...); err != nil {
		return o, err
	}
	o.jobs = slices.DeleteFunc(o.jobs, func(one *batchv1.Job) bool { return !metav1.IsControlledBy(one, job) })
	if o.pods, err = reconciling.List[*corev1.Pod](ctx, r.children.Client, &corev1.PodList{}, ours...); err != nil {
		return o, err
	}
	if ref := job.Spec.SpotInstanceVMRef; ref != nil {
		if o.vm, err = reconciling.Get[spotv1alpha1.SpotInstanceVM](ctx, r, job.Namespace, ref.Name); err != nil {
			return o, err
		}
	}
	for _, observe := range []func(context.Context, *observed) error{r.observeHidden, r.observeUnseenPods, r.observeNodes, r.observeBackups, r.observeSecrets} {
		if err := observe(ctx, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// observeHidden asks the API server for Jobs that the status names and the cache lacks: they were deleted, or only lost their
// labels.
func (r *Reconciler) observeHidden(ctx context.Context, o *observed) error {
	if isEnded(&o.job.Status) {
		return nil
	}
	for i := range o.job.Status.JobStatuses {
		entry := &o.job.Status.JobStatuses[i]
		known := slices.ContainsFunc(o.jobs, func(job *batchv1.Job) bool { return job.Name == entry.Name })
		if known || entry.Phase == spotv1alpha1.ReplicaFailed {
			continue
		}
		job, err := reconciling.Get[batchv1.Job](ctx, r.Direct, o.job.Namespace, entry.Name)
		if err != nil {
			return err
		}
		if job != nil && metav1.IsControlledBy(job, o.job) && job.DeletionTimestamp == nil {
			o.hidden = append(o.hidden, job)
		}
	}
	return nil
}

// observeUnseenPods reads the pods from the API server when a replica's Job has failed and the cache shows no pod that did: it may be behind,
// and without its pod a replica counts as lost and not as failed.
func (r *Reconciler) observeUnseenPods(ctx context.Context, o *observed) (err error) {
	unseen := func(r *replica) bool {
		return r.current != nil && jobCondition(r.current, batchv1.JobFailed) != nil && failedPod(r.pods) == nil
	}
	if isEnded(&o.job.Status) || !o.job.HasOnePod() || !slices.ContainsFunc(o.replicas(), unseen) {
		return nil
	}
	o.pods, err = reconciling.List[*corev1.Pod](ctx, r.Direct, &corev1.PodList{}, client.InNamespace(o.job.Namespace),
		client.MatchingLabels{spotv1alpha1.LabelSpotInstanceJob: o.job.Name})
	podend.SetPhases(o.pods)
	return err
}

// observeNodes reads the nodes of the job's pods. That the cache lacks a node may mean that it has just joined.
func (r *Reconciler) observeNodes(ctx context.Context, o *observed) error {
	o.nodes = map[string]*node{}
	for _, pod := range o.pods {
		name := pod.Spec.NodeName
		if _, known := o.nodes[name]; known || name == "" || podend.IsEnded(pod) {
			continue
		}
		is, err := reconciling.Get[corev1.Node](ctx, r, "", name)
		if is == nil && err == nil {
			is, err = reconciling.Get[corev1.Node](ctx, r.Direct, "", name)
		}
		switch {
		case err != nil:
			return err
		case is == nil:
			o.nodes[name] = &node{gone: true}
		default:
			o.nodes[name] = nodeOf(is, o.now)
		}
	}
	return nil
}

func nodeOf(is *corev1.Node, now time.Time) *node {
	n := &node{}
	for _, condition := range is.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			n.ready = condition.Status == corev1.ConditionTrue
		}
	}
	for _, taint := range is.Spec.Taints {
		n.outOfService = n.outOfService || taint.Key == corev1.TaintNodeOutOfService
	}
	if notice, ok := nodenotice.FromNode(is, now); ok {
		n.notice = &notice
	}
	return n
}

// observeBackups lists the job's CheckpointBackups: those in the cache, and those that were asked for a moment ago.
func (r *Reconciler) observeBackups(ctx context.Context, o *observed) error {
	if o.job.Spec.CheckpointConfig == nil {
		return nil
	}
	backups, err := r.Backups.List(ctx, o.job.Namespace, map[string]string{labelJobUID: string(o.job.UID)})
	if errors.Is(err, checkpointbackup.ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	o.served = true
	o.backups = r.requested.merge(client.ObjectKeyFromObject(o.job), backups, o.now)
	return nil
}

// observeSecrets looks for the Secrets that the job names, when a replica is to be started or one was missing.
func (r *Reconciler) observeSecrets(ctx context.Context, o *observed) error {
	if !o.mayStart() {
		return nil
	}
	for _, need := range secretsOf(o.job) {
		if need.ref.IsElsewhere(o.job.Namespace) {
			o.secretProblem = fmt.Sprintf("%s: Secret %s lies in namespace %s, and only one in the job's own namespace %s may be used: "+
				"copy it there and remove the namespace here", need.field, need.ref.Name, need.ref.Namespace, o.job.Namespace)
			return nil
		}
		secret, err := reconciling.Get[corev1.Secret](ctx, r.Direct, o.job.Namespace, need.ref.Name)
		switch {
		case err != nil:
			return err
		case secret == nil:
			o.secretProblem = fmt.Sprintf("%s: Secret %s does not exist in namespace %s: create it with the key %s",
				need.field, need.ref.Name, o.job.Namespace, need.key)
			return nil
		case len(secret.Data[need.key]) == 0:
			o.secretProblem = fmt.Sprintf("%s: Secret %s has no key %s: add it", need.field, need.ref.Name, need.key)
			return nil
		}
	}
	return nil
}

type secretNeed struct {
	field, key string
	ref        *spotv1alpha1.SecretReference
}

func secretsOf(job *spotv1alpha1.SpotInstanceJob) []secretNeed {
	needs := []secretNeed{{"spec.gcpCredentialsSecretRef", credentialsKey, job.Spec.GCPCredentialsSecretRef}}
	if c := job.Spec.CheckpointConfig; c != nil {
		needs = append(needs, secretNeed{
			"spec.checkpointConfig.checkpointRepoCredentialRef", corev1.DockerConfigJsonKey, c.CheckpointRepoCredentialRef,
		})
	}
	return slices.DeleteFunc(needs, func(need secretNeed) bool { return need.ref == nil })
}

// mayStart says whether a plan may have reason to start a replica, or to say that one cannot be started.
func (o observed) mayStart() bool {
	if isEnded(&o.job.Status) {
		return false
	}
	if reporting.Reason(o.job.Status.Conditions, reasons.ConditionReady) == reasons.SecretNotFound ||
		o.job.Status.ObservedGeneration != o.job.Generation {
		return true
	}
	return slices.ContainsFunc(o.replicas(), func(r *replica) bool {
		return r.current == nil || r.retiredFor() != "" || isJobEnded(r.current)
	})
}
