package review

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// Kinds that objects name.
var (
	ConfigMap             = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	PersistentVolumeClaim = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
	Secret                = corev1.SchemeGroupVersion.WithKind("Secret")
	ServiceAccount        = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	PriorityClass         = schedulingv1.SchemeGroupVersion.WithKind("PriorityClass")
	SpotInstanceVM        = spotv1alpha1.GroupVersion.WithKind("SpotInstanceVM")
)

// Reference is an object that another one names.
type Reference struct {
	// Field that names it.
	Field string
	Kind  schema.GroupVersionKind
	// Namespace is empty for objects of the cluster.
	Namespace string
	Name      string
	// Key of a ConfigMap that is asked for; empty for any other kind.
	Key string
	// Until says what happens as long as the object is missing.
	Until string
}

// Missing is a reference to an object, or to a key of an object, that does not exist.
type Missing struct {
	Reference

	// KeyOnly says that the object exists, without the key.
	KeyOnly bool
}

// String names the field, what is missing and what to do.
func (m Missing) String() string {
	what := fmt.Sprintf("%s %q", m.Kind.Kind, m.Name)
	if m.Namespace != "" {
		what += " in namespace " + m.Namespace
	}
	if m.KeyOnly {
		return fmt.Sprintf("%s: %s has no key %q: add it or correct the key; until then %s", m.Field, what, m.Key, m.Until)
	}
	return fmt.Sprintf("%s: there is no %s: create it or correct the name; until then %s", m.Field, what, m.Until)
}

// LookUp are questions whether objects exist, and what is missing once these are answered. What the user may not see is left out, but for
// objects that belong to no namespace: the events of pods name those that are missing.
func (a Asker) LookUp(references []Reference) (questions []Question, missing func() []Missing) {
	absent := make([]*Missing, len(references))
	for n, r := range references {
		q := Question{About: r.Field, Ask: func(ctx context.Context) (err error) {
			absent[n], err = a.look(ctx, r)
			return err
		}}
		if r.Namespace != "" {
			q.Needs = ToSee("get", r.Namespace, r.Name, r.Kind)
		}
		questions = append(questions, q)
	}
	return questions, func() (list []Missing) {
		for _, m := range absent {
			if m != nil {
				list = append(list, *m)
			}
		}
		return list
	}
}

// look returns what is missing of a reference; nil when nothing is.
func (a Asker) look(ctx context.Context, r Reference) (*Missing, error) {
	config, other := &corev1.ConfigMap{}, &metav1.PartialObjectMetadata{}
	other.SetGroupVersionKind(r.Kind)
	object := client.Object(other)
	if r.Key != "" {
		object = config
	}
	err := a.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, object)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return &Missing{Reference: r}, nil
	case err != nil, r.Key == "":
		return nil, err
	}
	_, text := config.Data[r.Key]
	_, binary := config.BinaryData[r.Key]
	if text || binary {
		return nil, nil
	}
	return &Missing{Reference: r, KeyOnly: true}, nil
}
