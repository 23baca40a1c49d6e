package trainingjob

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// findings are the API server's answers.
type findings struct {
	// missing are references to objects, or to keys of objects, that do not exist.
	missing []review.Missing
	// quotas and ranges are those of the job's namespace.
	quotas corev1.ResourceQuotaList
	ranges corev1.LimitRangeList
	// classes are the StorageClasses; nil when they were not asked for.
	classes []metav1.PartialObjectMetadata
	// trial is that of the workers' Job; empty when it was not tried out.
	trial review.Trial
	// unchecked is what there was no answer about.
	unchecked []string
}

// ask puts all questions at the same time. What has no answer in time stays open. What the user may not see is left out, but for classes, which
// belong to no namespace: the events of claims name those that are missing.
func (v *validator) ask(ctx context.Context, user authenticationv1.UserInfo, job *mlv1.TrainingJob, children []client.Object, tryOut bool) findings {
	var found findings
	here := client.InNamespace(job.Namespace)
	questions := []review.Question{
		{
			About: "the ResourceQuotas of the namespace", Needs: review.ToSee("list", job.Namespace, "", corev1.SchemeGroupVersion.WithKind("ResourceQuota")),
			Ask: func(ctx context.Context) error {
				return v.asker.Client.List(ctx, &found.quotas, here, review.AsKnown())
			},
		},
		{
			About: "the LimitRanges of the namespace", Needs: review.ToSee("list", job.Namespace, "", corev1.SchemeGroupVersion.WithKind("LimitRange")),
			Ask: func(ctx context.Context) error {
				return v.asker.Client.List(ctx, &found.ranges, here, review.AsKnown())
			},
		},
	}
	lookups, missing := v.asker.LookUp(referencesOf(job, children))
	questions = append(questions, lookups...)
	if wantsClass(among[*corev1.PersistentVolumeClaim](children)) {
		questions = append(questions, review.Question{About: "spec.checkpoint.storage.storageClassName", Ask: func(ctx context.Context) error {
			var list metav1.PartialObjectMetadataList
			list.SetGroupVersionKind(kindStorageClass.GroupVersion().WithKind("StorageClassList"))
			err := v.asker.Client.List(ctx, &list, review.AsKnown())
			if err == nil {
				found.classes = append([]metav1.PartialObjectMetadata{}, list.Items...)
			}
			return err
		}})
	}
	trial := &review.Trial{}
	if tryOut {
		var try review.Question
		try, trial = v.asker.Try("whether the workers can be created", user, among[*batchv1.Job](children))
		questions = append(questions, try)
	}
	found.unchecked = v.asker.Ask(ctx, user, questions)
	found.missing, found.trial = missing(), *trial
	return found
}

// wantsClass says whether a StorageClass has to provide for the claim. The class "" means a volume that exists.
func wantsClass(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && (claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName != "")
}
