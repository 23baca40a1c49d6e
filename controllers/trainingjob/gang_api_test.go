package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/fakes/gangs"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func TestAPIAGangSchedulerThatIsInstalledLaterIsFound(t *testing.T) {
	c := newCluster(t)
	m := c.start(nil)
	volcano, err := gangs.Volcano()
	require.NoError(t, err)
	coscheduling, err := gangs.Coscheduling()
	require.NoError(t, err)
	by := func(name, scheduler string) *mlv1.TrainingJob {
		return c.submit(builders.TrainingJob(name).Workers(2).Elastic(2, 3).Rescale(mlv1.RescaleRestart).Spec(func(spec *mlv1.TrainingJobSpec) {
			spec.Scheduling = &mlv1.Scheduling{SchedulerName: scheduler}
		}))
	}
	missing := func(job *mlv1.TrainingJob) bool { return job.Status.Reason == reasons.GangNotServed }
	first, second := by("first", "volcano"), by("second", "scheduler-plugins-scheduler")
	told := c.await(first, "told that Volcano is missing", missing)
	assert.Contains(t, waitingMessage(&told.Status), "install Volcano")
	c.await(second, "told that scheduler-plugins are missing", missing)

	_, err = envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{Paths: []string{volcano, coscheduling}, MaxTime: patience})
	require.NoError(t, err)

	versions := map[*mlv1.TrainingJob]string{first: "scheduling.volcano.sh/v1beta1", second: "scheduling.x-k8s.io/v1alpha1"}
	for job, version := range versions {
		c.run(c.startPods(c.workers(job, 0))...)
		running := c.await(job, "running", state(mlv1.StateRunning))
		assert.Equal(t, "True GangScheduled", outlineOf(desired{status: running.Status}).Conditions["Admitted"])
		assert.Equal(t, int64(2), c.minMember(job, version))
	}
	for job := range versions { // while one starts, the writes of the other are among those that are counted
		c.settled(m, job)
	}
	before := len(m.Written())
	m.lookAgain(first, 3)
	m.lookAgain(second, 3)
	assert.Len(t, m.Written(), before, "nothing is written when nothing changed")

	for job, version := range versions {
		running := c.await(job, "running", state(mlv1.StateRunning))
		resized := running.DeepCopy()
		resized.Spec.NumWorkers = 3
		require.NoError(t, c.Patch(t.Context(), resized, client.MergeFrom(running)))
		pods := c.startPods(c.workers(job, 1))
		assert.Equal(t, int64(3), c.minMember(job, version), "the PodGroup grew before its pods came")
		c.run(pods...)
		c.await(job, "running again", state(mlv1.StateRunning))
		c.end(0, "", pods...)
		c.await(job, "completed", state(mlv1.StateCompleted))
		eventually(t, "the end of the PodGroup", func() bool {
			return client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: build.WorkersName(job)}, group(version))) == nil &&
				c.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: build.WorkersName(job)}, group(version)) != nil
		})
	}
}

func group(version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(version)
	object.SetKind("PodGroup")
	return object
}

func (c *cluster) minMember(job *mlv1.TrainingJob, version string) int64 {
	c.t.Helper()
	of := group(version)
	require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKey{Namespace: c.namespace, Name: build.WorkersName(job)}, of))
	assert.Equal(c.t, job.UID, of.GetOwnerReferences()[0].UID)
	size, _, err := unstructured.NestedInt64(of.Object, "spec", "minMember")
	require.NoError(c.t, err)
	return size
}
