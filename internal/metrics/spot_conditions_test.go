package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

type spotLister struct {
	client.Reader

	vms  []spotv1alpha1.SpotInstanceVM
	jobs []spotv1alpha1.SpotInstanceJob
	err  error
}

func (l spotLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *spotv1alpha1.SpotInstanceVMList:
		list.Items = l.vms
	case *spotv1alpha1.SpotInstanceJobList:
		list.Items = l.jobs
		return l.err
	}
	return nil
}

func TestConditionsThatAreFalse(t *testing.T) {
	conditions := []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: "SecretNotFound"}, {Type: "CapacityAvailable", Status: metav1.ConditionTrue, Reason: "Ready"},
	}
	vm := spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "t4"}}
	vm.Status.Conditions = conditions
	other := *vm.DeepCopy()
	other.Name = "beyond"
	ended := spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "ended"}}
	ended.Status.Conditions, ended.Status.CompletionTime = conditions, ptr.To(metav1.Now())
	job := spotv1alpha1.SpotInstanceJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "bert"}}
	job.Status.Conditions = conditions
	next := *job.DeepCopy()
	next.Name = "beyond"
	lister := spotLister{vms: []spotv1alpha1.SpotInstanceVM{vm, other}, jobs: []spotv1alpha1.SpotInstanceJob{ended, job, next}}

	const want = `
# HELP spotinstancejob_condition_false 1 for each condition of an unfinished SpotInstanceJob that is False.
# TYPE spotinstancejob_condition_false gauge
spotinstancejob_condition_false{condition="Ready",namespace="team",reason="SecretNotFound",spot_instance_job="bert"} 1
# HELP spotinstancevm_condition_false 1 for each condition of a SpotInstanceVM that is False.
# TYPE spotinstancevm_condition_false gauge
spotinstancevm_condition_false{condition="Ready",namespace="team",reason="SecretNotFound",spot_instance_vm="t4"} 1
`
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewSpotInstanceStatus(lister, 1), NewSpotInstanceJobStatus(lister, 1))
	names := []string{"spotinstancejob_condition_false", "spotinstancevm_condition_false"}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), names...))
	problems, err := testutil.GatherAndLint(registry, names...)
	require.NoError(t, err)
	assert.Empty(t, problems)
	lister.err = errors.New("no cache")
	require.ErrorContains(t, testutil.CollectAndCompare(NewSpotInstanceJobStatus(lister, 1), strings.NewReader("")), "no cache")
}
