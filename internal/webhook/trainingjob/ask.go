package trainingjob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// findings are the API server's answers.
type findings struct {
	// missing are references to objects, or to keys of objects, that do not exist.
	missing []missing
	// quotas and ranges are those of the job's namespace.
	quotas corev1.ResourceQuotaList
	ranges corev1.LimitRangeList
	// classes are the StorageClasses; nil when they were not asked for.
	classes []metav1.PartialObjectMetadata
	// refused is why the workers' Job could never be created.
	refused []metav1.StatusCause
	// said is what the API server had to say when the workers' Job was tried out.
	said []string
	// unchecked is what there was no answer about.
	unchecked []string
}

type missing struct {
	reference
	// keyOnly says that the object exists, without the key.
	keyOnly bool
}

// question is one request to the API server.
type question struct {
	// about is how the user knows what it is about.
	about string
	// needs is what the user must be allowed, or the question is not put; nil for what any user may know.
	needs *authorizationv1.ResourceAttributes
	ask   func(context.Context) error
}

// toSee is what a user must be allowed to see objects of a kind.
func toSee(verb, namespace, name string, kind schema.GroupVersionKind) *authorizationv1.ResourceAttributes {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return &authorizationv1.ResourceAttributes{Verb: verb, Namespace: namespace, Name: name, Group: plural.Group, Version: plural.Version, Resource: plural.Resource}
}

// asKnown has the API server answer from what it holds in memory, at most some milliseconds old. For the newest it
// would wait up to 100 ms, whenever anything else in the cluster was written meanwhile, until etcd tells it that
// nothing is missing. Every request needs options of its own, because the client writes into them.
func asKnown() client.ListOption {
	return &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
}

// ask puts all questions at the same time. What has no answer when the context ends stays open. What the user may not see is left out,
// but for classes, which belong to no namespace: the events of pods and claims name those that are missing.
func (v *validator) ask(ctx context.Context, user authenticationv1.UserInfo, job *mlv1.TrainingJob, children []client.Object, tryOut bool) findings {
	var found findings
	references := referencesOf(job, children)
	absent := make([]*missing, len(references))
	here := client.InNamespace(job.Namespace)
	questions := []question{
		{"the ResourceQuotas of the namespace", toSee("list", job.Namespace, "", coreKind("ResourceQuota")), func(ctx context.Context) error { return v.cluster.List(ctx, &found.quotas, here, asKnown()) }},
		{"the LimitRanges of the namespace", toSee("list", job.Namespace, "", coreKind("LimitRange")), func(ctx context.Context) error { return v.cluster.List(ctx, &found.ranges, here, asKnown()) }},
	}
	for n, r := range references {
		var needs *authorizationv1.ResourceAttributes
		if r.namespace != "" {
			needs = toSee("get", r.namespace, r.name, r.kind)
		}
		questions = append(questions, question{r.field, needs, func(ctx context.Context) (err error) {
			absent[n], err = look(ctx, v.cluster, r)
			return err
		}})
	}
	if wantsClass(among[*corev1.PersistentVolumeClaim](children)) {
		questions = append(questions, question{"spec.checkpoint.storage.storageClassName", nil, func(ctx context.Context) error {
			var list metav1.PartialObjectMetadataList
			list.SetGroupVersionKind(kindStorageClass.GroupVersion().WithKind("StorageClassList"))
			err := v.cluster.List(ctx, &list, asKnown())
			if err == nil {
				found.classes = append([]metav1.PartialObjectMetadata{}, list.Items...)
			}
			return err
		}})
	}
	if tryOut {
		questions = append(questions, question{"whether the workers can be created", nil, func(ctx context.Context) error {
			return v.tryWorkers(ctx, user, among[*batchv1.Job](children), &found)
		}})
	}
	found.unchecked = v.askAll(ctx, user, questions)
	for _, m := range absent {
		if m != nil {
			found.missing = append(found.missing, *m)
		}
	}
	return found
}

// wantsClass says whether a StorageClass has to provide for the claim. The class "" means a volume that exists.
func wantsClass(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && (claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "")
}

// askAll returns what the questions without answer are about.
func (v *validator) askAll(ctx context.Context, user authenticationv1.UserInfo, questions []question) []string {
	failures := make([]error, len(questions))
	var all sync.WaitGroup
	for n, q := range questions {
		all.Go(func() {
			may := q.needs == nil
			if !may {
				may, failures[n] = v.may(ctx, user, *q.needs)
			}
			if may {
				failures[n] = q.ask(ctx)
			}
		})
	}
	all.Wait()
	var open []string
	for n, err := range failures {
		if err == nil {
			continue
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			log.FromContext(ctx).Info("The API server could not be asked", "about", questions[n].about, "error", err.Error())
		}
		open = append(open, questions[n].about)
	}
	return open
}

// look returns what is missing of a reference; nil when nothing is.
func look(ctx context.Context, cluster client.Client, r reference) (*missing, error) {
	config, other := &corev1.ConfigMap{}, &metav1.PartialObjectMetadata{}
	other.SetGroupVersionKind(r.kind)
	object := client.Object(other)
	if r.key != "" {
		object = config
	}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.name}, object)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return &missing{reference: r}, nil
	case err != nil, r.key == "":
		return nil, err
	}
	_, text := config.Data[r.key]
	_, binary := config.BinaryData[r.key]
	if text || binary {
		return nil, nil
	}
	return &missing{reference: r, keyOnly: true}, nil
}

// tryWorkers has the API server check the workers' Job as if it were created now. That the name is taken, or that
// another webhook takes no trials, says nothing about the job. Why it is forbidden, as by a quota with its figures, is told to a user who would be told
// the same when creating a Job.
func (v *validator) tryWorkers(ctx context.Context, user authenticationv1.UserInfo, workers *batchv1.Job, found *findings) error {
	err := v.cluster.Create(listen(ctx, &found.said), workers.DeepCopy(), client.DryRunAll)
	var status *apierrors.StatusError
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsBadRequest(err):
		return nil
	case apierrors.IsInvalid(err) && errors.As(err, &status):
		if details := status.ErrStatus.Details; details != nil {
			found.refused = slices.Clone(details.Causes)
		}
		if len(found.refused) == 0 {
			found.refused = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: err.Error()}}
		}
		return nil
	case apierrors.IsForbidden(err):
		may, reviewErr := v.may(ctx, user, *toSee("create", workers.Namespace, "", batchv1.SchemeGroupVersion.WithKind("Job")))
		if reviewErr == nil && may {
			found.said = append(found.said, fmt.Sprintf("the workers cannot be created at present: %v: the operator tries again every few seconds", err))
		}
		return reviewErr
	}
	return err
}
