package spotinstancevm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestSecretOf(t *testing.T) {
	ref := func(name, namespace string) *spotv1alpha1.SecretReference {
		return &spotv1alpha1.SecretReference{Name: name, Namespace: namespace}
	}
	job := func(name string, age time.Duration, secret *spotv1alpha1.SecretReference) spotv1alpha1.SpotInstanceJob {
		j := spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-age))}}
		j.Spec.GCPCredentialsSecretRef = secret
		return j
	}
	tests := map[string]struct {
		own  *spotv1alpha1.SecretReference
		used string
		jobs []spotv1alpha1.SpotInstanceJob
		want string
		not  string // part of the message
	}{
		"none is named: the operator's own identity": {},
		"its own":                       {own: ref("own", ""), jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("jobs", ""))}, want: "own"},
		"its own, with its namespace":   {own: ref("own", "team"), want: "own"},
		"not that of another namespace": {own: ref("own", "kube-system"), not: "spec.gcp.credentialsSecretRef.namespace: is kube-system"},
		"that of the oldest job":        {jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("young", "")), job("b", time.Hour, ref("old", ""))}, want: "old"},
		"a job without one is no help":  {jobs: []spotv1alpha1.SpotInstanceJob{job("b", time.Hour, nil), job("a", 0, ref("young", ""))}, want: "young"},
		"the one in use, as long as it is named": {
			used: "young", jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("young", "")), job("b", time.Hour, ref("old", ""))}, want: "young",
		},
		"another when it is named no more":      {used: "before", jobs: []spotv1alpha1.SpotInstanceJob{job("b", time.Hour, ref("old", ""))}, want: "old"},
		"the one in use when the jobs are gone": {used: "before", want: "before"},
		"a job that names another namespace": {
			jobs: []spotv1alpha1.SpotInstanceJob{job("a", 0, ref("x", "other"))}, not: "spec.gcpCredentialsSecretRef of SpotInstanceJob a.namespace",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Name: "t4", Namespace: "team"}}
			vm.Spec.GCP.CredentialsSecretRef = test.own
			if test.used != "" {
				vm.Annotations = map[string]string{spotv1alpha1.AnnotationCredentialsSecret: test.used}
			}
			got, problem := secretOf(vm, test.jobs)
			assert.Equal(t, test.want, got)
			assert.Equal(t, test.not != "", problem.exists())
			assert.Contains(t, problem.message, test.not)
		})
	}
}
