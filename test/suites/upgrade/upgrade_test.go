// Package upgrade checks what the manager does with the objects of an earlier release, as a process of its own with the
// permissions that it is installed with, on a real API server.
package upgrade

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const conditionName = "spot-training-operator.v0.2.0"

// A release stores TrainingJobs in another version than the one before: every job is rewritten, once, and nothing else
// about it changes; OLM does not go on to the release after until that is done.
func TestUpgradeToANewStorageVersion(t *testing.T) {
	const jobs = 40
	c := newCluster(t)
	before := c.start(nil)
	for i := range jobs {
		job := builders.TrainingJob(fmt.Sprintf("job-%02d", i)).Namespace(metav1.NamespaceDefault).Workers(2).ToCreate()
		require.NoError(t, c.Create(t.Context(), job))
	}
	// Nothing creates pods here; once the manager has said so there is nothing left for it to do.
	c.eventually("the manager has done all it can do", func() bool {
		var list mlv1.TrainingJobList
		require.NoError(t, c.List(t.Context(), &list))
		return !slices.ContainsFunc(list.Items, func(job mlv1.TrainingJob) bool { return job.Status.Reason != reasons.PodCreationFailed })
	})
	assert.Nil(t, c.upgradeable(), "without OLM there is no condition to set")
	before.stop()
	storedBefore, contentsBefore, childrenBefore := c.stored(), c.contents(), c.children()
	require.Len(t, storedBefore, jobs)

	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: jobsCRD}, crd))
	storeAs(crd, "v1")
	require.NoError(t, c.Update(t.Context(), crd))

	after := c.start([]string{"OPERATOR_CONDITION_NAME=" + conditionName, "POD_NAMESPACE=" + namespace}, "--storage-migration-qps=20")
	c.eventually("the manager finds no OperatorCondition", func() bool { return after.logs("Not ready until OLM knows") })
	assert.False(t, after.ready(), "ready before OLM was told to wait")
	assert.Equal(t, storedBefore, c.stored(), "objects were written before OLM was told to wait")

	c.installOperatorCondition(conditionName)
	c.eventually("the manager is ready", after.ready)
	condition := c.upgradeable()
	require.NotNil(t, condition, "ready before OLM was told to wait")
	assert.Equal(t, metav1.ConditionFalse, condition.Status)
	assert.Equal(t, "StorageMigrationRunning", condition.Reason)
	assert.Contains(t, condition.Message, jobsCRD+" from v1beta1 to v1")

	c.eventually("the migration ends", func() bool { return slices.Equal([]string{"v1"}, c.storedVersions()) })
	c.eventually("OLM may go on", func() bool {
		condition := c.upgradeable()
		return condition.Status == metav1.ConditionTrue && condition.Reason == "StorageVersionsCurrent"
	})
	for name, object := range c.stored() {
		assert.Equal(t, "ml.example.com/v1", object.APIVersion, name)
		assert.Equal(t, storedBefore[name].Writes+1, object.Writes, "%s: number of writes", name)
	}
	assert.Empty(t, cmp.Diff(contentsBefore, c.contents()), "the jobs are as before")
	assert.Empty(t, cmp.Diff(childrenBefore, c.children()), "nothing was written about their children")
	assert.True(t, after.logs("StorageMigrated"))
}

// upgradeable is what OLM is told.
func (c *cluster) upgradeable() *metav1.Condition {
	object := &operatorsv2.OperatorCondition{}
	err := c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: conditionName}, object)
	require.NoError(c.t, client.IgnoreNotFound(err))
	return meta.FindStatusCondition(object.Spec.Conditions, operatorsv2.Upgradeable)
}

// contents are the jobs without their resource versions.
func (c *cluster) contents() map[string]mlv1.TrainingJob {
	c.t.Helper()
	var list mlv1.TrainingJobList
	require.NoError(c.t, c.List(c.t.Context(), &list))
	jobs := map[string]mlv1.TrainingJob{}
	for _, job := range list.Items {
		job.ResourceVersion = ""
		jobs[job.Name] = job
	}
	return jobs
}

// children are the resource versions of what belongs to the jobs.
func (c *cluster) children() map[string]string {
	c.t.Helper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{
		&batchv1.JobList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.ServiceAccountList{}, &corev1.PersistentVolumeClaimList{},
	} {
		require.NoError(c.t, c.List(c.t.Context(), list, client.InNamespace(metav1.NamespaceDefault), client.HasLabels{mlv1.LabelTrainingJob}))
		require.NoError(c.t, meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			versions[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
			return nil
		}))
	}
	assert.NotEmpty(c.t, versions)
	return versions
}
