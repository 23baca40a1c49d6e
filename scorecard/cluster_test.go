package main

import (
	"context"
	"testing"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/checks"
)

// deploy creates the manager's Deployment with the status that its controller would write.
func (b *bench) deploy(available int32) *appsv1.Deployment {
	b.t.Helper()
	labels := map[string]string{"app": "manager"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: managerName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "manager:1"}}},
			},
		},
	}
	require.NoError(b.t, b.Create(b.t.Context(), deployment))
	b.t.Cleanup(func() { _ = b.Delete(context.Background(), deployment) })
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1,
		ReadyReplicas: available, AvailableReplicas: available,
	}
	require.NoError(b.t, b.Status().Update(b.t.Context(), deployment))
	return deployment
}

func TestOperatorReady(t *testing.T) {
	b := newBench(t)
	const name = "level1-operator-ready"

	b.fails(name, "no namespace has a Deployment "+managerName)

	deployment := b.deploy(0)
	b.fails(name, "has 0 of 1 replicas available")

	deployment.Status.ReadyReplicas, deployment.Status.AvailableReplicas = 1, 1
	require.NoError(t, b.Status().Update(t.Context(), deployment))
	b.passes(name)

	other := newBench(t)
	other.deploy(1)
	b.fails(name, "installed in several namespaces")
}

// install plays OLM's part: the ClusterServiceVersion of the bundle in the phase.
func (b *bench) install(phase operatorsv1alpha1.ClusterServiceVersionPhase) *operatorsv1alpha1.ClusterServiceVersion {
	b.t.Helper()
	csv := b.bundle.CSV.DeepCopy()
	csv.Namespace, csv.ResourceVersion = b.namespace, ""
	require.NoError(b.t, b.Create(b.t.Context(), csv))
	csv.Status.Phase = phase
	require.NoError(b.t, b.Status().Update(b.t.Context(), csv))
	return csv
}

func TestOperatorReadyUnderOLM(t *testing.T) {
	b := newBench(t)
	b.deploy(1)
	csv := b.install(operatorsv1alpha1.CSVPhaseInstalling)

	b.fails("level1-operator-ready", "is Succeeded: it is Installing")

	csv.Status.Phase = operatorsv1alpha1.CSVPhaseSucceeded
	require.NoError(t, b.Status().Update(t.Context(), csv))
	b.passes("level1-operator-ready")
}

func TestUpgradeableUnderOLM(t *testing.T) {
	b := newBench(t)
	b.deploy(1)
	const name = "level2-upgradeable-condition"
	b.fails(name, "was not installed by OLM")

	csv := b.install(operatorsv1alpha1.CSVPhaseSucceeded)
	b.fails(name, "the operator wrote no condition Upgradeable")

	told := metav1.Condition{Type: operatorsv2.Upgradeable, Status: metav1.ConditionFalse, Reason: "Migrating", Message: "wait", LastTransitionTime: metav1.Now()}
	condition := &operatorsv2.OperatorCondition{
		ObjectMeta: metav1.ObjectMeta{Namespace: csv.Namespace, Name: csv.Name},
		Spec:       operatorsv2.OperatorConditionSpec{Conditions: []metav1.Condition{told}},
	}
	require.NoError(t, b.Create(t.Context(), condition))
	b.fails(name, "the operator wrote Upgradeable=False (Migrating: wait), OLM took over no condition Upgradeable")

	condition.Spec.Conditions[0].Status = metav1.ConditionTrue
	require.NoError(t, b.Update(t.Context(), condition))
	condition.Status.Conditions = condition.Spec.Conditions
	require.NoError(t, b.Status().Update(t.Context(), condition))
	b.passes(name)
}

func TestKindsServed(t *testing.T) {
	b := newBench(t)
	b.passes("level1-kinds-served")

	b.bundle.CSV.Spec.CustomResourceDefinitions.Owned[0].Name = "trainingjobs.example.com"
	got := b.run("level1-kinds-served", 0)
	assert.Equal(t, "error", string(got.State), "the role lets it read no other definition")

	b = newBench(t)
	b.bundle.CSV.Spec.CustomResourceDefinitions.Owned[0].Version = "v9"
	b.fails("level1-kinds-served", "does not serve")
}

func TestBadInputRejected(t *testing.T) {
	b := newBench(t)
	b.passes("level1-bad-input-rejected")

	// An API server that checks less.
	var crd apiextensionsv1.CustomResourceDefinition
	key := client.ObjectKey{Name: "computeclusters.aiplatform.example.com"}
	require.NoError(t, b.Get(t.Context(), key, &crd))
	strict := crd.DeepCopy()
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	capacity := spec.Properties["capacity"]
	gpus := capacity.Properties["maxGPUs"]
	gpus.Minimum = nil
	capacity.Properties["maxGPUs"] = gpus
	require.NoError(t, b.Update(t.Context(), &crd))
	t.Cleanup(func() {
		strict.ResourceVersion = ""
		require.NoError(t, b.Patch(context.Background(), strict, client.Merge))
	})
	require.Eventually(t, func() bool { return b.run("level1-bad-input-rejected", 0).State == "fail" }, waitForAPI, pollAPI)
	b.fails("level1-bad-input-rejected", "ComputeCluster with spec.capacity.maxGPUs=-1 is accepted")
}

func TestStoredVersions(t *testing.T) {
	b := newBench(t)
	b.passes("level2-stored-versions")

	// An older version in which objects are still stored.
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, b.Get(t.Context(), client.ObjectKey{Name: "agents.aiplatform.example.com"}, &crd))
	older := *crd.Spec.Versions[0].DeepCopy()
	older.Name, older.Storage = "v1alpha0", false
	crd.Spec.Versions = append(crd.Spec.Versions, older)
	require.NoError(t, b.Update(t.Context(), &crd))
	crd.Status.StoredVersions = []string{"v1alpha0", "v1alpha1"}
	require.NoError(t, b.Status().Update(t.Context(), &crd))
	t.Cleanup(func() {
		crd.Status.StoredVersions = []string{"v1alpha1"}
		require.NoError(t, b.Status().Update(context.Background(), &crd))
		crd.Spec.Versions = crd.Spec.Versions[:1]
		require.NoError(t, b.Update(context.Background(), &crd))
	})
	b.fails("level2-stored-versions", "status.storedVersions is [v1alpha0 v1alpha1], the storage version v1alpha1")
}

func TestUpgradePathOfTheBundle(t *testing.T) {
	newBench(t).passes("level2-upgrade-path")
}

// No webhook runs here that pins the image: the test must see that.
func TestImagePinned(t *testing.T) {
	b := newBench(t)
	b.fails("level2-image-pinned", "spec.image of a TrainingJob that names none stays empty")
}

func TestStatusFollowsSpec(t *testing.T) {
	b := newBench(t)
	b.fails("level1-status-follows-spec", "gave up waiting until TrainingJob")

	startOperator(t, b.namespace)
	b.passes("level1-status-follows-spec")
}

func TestKinds(t *testing.T) {
	b := newBench(t)
	b.fails("kind-aijob", "gave up waiting until AIJob")

	startOperator(t, b.namespace)
	for _, test := range checks.All() {
		if test.Suite() == "kinds" && test.Name != "kind-trainingjob" && test.Name != "kind-spotinstancevm" {
			b.passes(test.Name)
		}
	}
}

// Nothing trains here: no controller creates the job's pods. The test must not take that for training, and must clean up.
func TestATrainingJobThatDoesNotTrainFails(t *testing.T) {
	b := newBench(t)
	startOperator(t, b.namespace)

	b.fails("kind-trainingjob", "is Running; last seen: TrainingJob sc-trainingjob-")
}
