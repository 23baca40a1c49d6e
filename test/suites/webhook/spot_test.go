package webhook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	spotwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/spot"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// sampleVM is the one of config/samples.
func sampleVM(t *testing.T, ns string) *spotv1alpha1.SpotInstanceVM {
	t.Helper()
	vm := &spotv1alpha1.SpotInstanceVM{}
	require.NoError(t, yaml.UnmarshalStrict(readFile(t, root+"/config/samples/training_v1alpha1_spotinstancevm.yaml"), vm))
	vm.Namespace = ns
	return vm
}

// awaitSpotWebhooks waits until the API server calls the webhooks of both kinds.
func awaitSpotWebhooks(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "the API server calls the webhooks", func() bool {
		job := builders.SpotInstanceJob("probe").Namespace(ns).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
			s.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp", Namespace: "elsewhere"}
		}).ToCreate()
		vm := sampleVM(t, ns)
		vm.Spec.GPU.Count = 3
		return k8s.Create(t.Context(), job, client.DryRunAll) != nil && k8s.Create(t.Context(), vm, client.DryRunAll) != nil
	})
}

func TestWhatSpotInstanceJobsLackIsToldAsWarnings(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	awaitSpotWebhooks(t, ns)
	said, asUser := user(t)
	job := func(name string) *spotv1alpha1.SpotInstanceJob {
		return builders.SpotInstanceJob(name).Namespace(ns).On("t4-spot").Checkpoints(time.Hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
			s.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp-credentials"}
		}).Template(func(s *batchv1.JobSpec) { s.Template.Spec.ServiceAccountName = "robot" }).ToCreate()
	}
	require.NoError(t, asUser.Create(t.Context(), job("early")))
	noAgent := "spec.checkpointConfig: the cluster serves no CheckpointBackup (migration.dcnlab.com): install a checkpoint agent; until then " +
		"no checkpoints are taken, and a lost replica starts from the beginning"
	in, until := " in namespace "+ns, ": create it or correct the name; until then "
	assert.ElementsMatch(t, []string{
		`spec.gcpCredentialsSecretRef.name: there is no Secret "gcp-credentials"` + in + until + "no spot instance is created",
		`spec.spotInstanceVMRef.name: there is no SpotInstanceVM "t4-spot"` + in + until + "no spot instance is created",
		`spec.jobTemplate.spec.template.spec.serviceAccountName: there is no ServiceAccount "robot"` + in + until + "the API server refuses the pods",
		noAgent,
	}, said())

	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: meta("gcp-credentials")}, &corev1.ServiceAccount{ObjectMeta: meta("robot")}, sampleVM(t, ns),
	} {
		require.NoError(t, k8s.Create(t.Context(), object))
	}
	require.NoError(t, asUser.Create(t.Context(), job("late")))
	assert.Equal(t, []string{noAgent}, said())
}

func TestWhatNoReplicaCanBeIsRefused(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	awaitSpotWebhooks(t, ns)
	refused := func(err error, text string) {
		t.Helper()
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(t, err, text)
	}
	for text, edit := range map[string]func(*batchv1.JobSpec){
		"denied the request: spec.jobTemplate.spec.template.spec.nodeSelector: Invalid value": func(s *batchv1.JobSpec) {
			s.Template.Spec.NodeSelector = map[string]string{"gpu": "not a value"}
		},
		"denied the request: spec.jobTemplate.spec.template.spec.containers[0].resources.limits[fpga]: Invalid value": func(s *batchv1.JobSpec) {
			s.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"fpga": resource.MustParse("1")}
		},
	} {
		refused(k8s.Create(t.Context(), builders.SpotInstanceJob("wrong").Namespace(ns).Template(edit).ToCreate()), text)
	}
	vm := sampleVM(t, ns)
	vm.Spec.GCP.MachineType = "e2-standard-8"
	refused(k8s.Create(t.Context(), vm), "spec.gpu: instances of machine type e2-standard-8 have no GPUs: choose a machine type in spec.gcp.machineType")
	vm = sampleVM(t, ns)
	vm.Spec.GCP.CredentialsSecretRef.Namespace = "elsewhere"
	refused(k8s.Create(t.Context(), vm), "spec.gcp.credentialsSecretRef.namespace: is elsewhere: only Secrets of the object's own namespace are read")

	right := builders.SpotInstanceJob("right").Namespace(ns).ToCreate()
	require.NoError(t, k8s.Create(t.Context(), right))
	before := calls(t, spotwebhook.JobPath)
	require.NoError(t, k8s.Patch(t.Context(), right, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`))))
	right.Status.Phase = spotv1alpha1.JobPending
	require.NoError(t, k8s.Status().Update(t.Context(), right))
	assert.Equal(t, before, calls(t, spotwebhook.JobPath), "it is called for nothing else")
}

func TestWhetherANamespaceMayHaveSpotInstancesIsTold(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	awaitSpotWebhooks(t, ns)
	said, asUser := user(t)
	try := func(edit func(*spotv1alpha1.SpotInstanceVM)) string {
		vm := sampleVM(t, ns)
		edit(vm)
		require.NoError(t, asUser.Create(t.Context(), vm, client.DryRunAll))
		return strings.Join(said(), "\n")
	}
	named := func(*spotv1alpha1.SpotInstanceVM) {}
	unnamed := func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.CredentialsSecretRef = nil }
	told := try(named)
	assert.Contains(t, told, "namespace "+ns+" may not have spot instances")
	assert.Contains(t, told, `spec.gcp.credentialsSecretRef.name: there is no Secret "gcp-credentials"`)
	assert.Contains(t, told, `spec.kubeadmJoinConfig.tokenSecretRef: there is no Secret "kubeadm-join"`)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	allow := `{"metadata": {"labels": {"` + spotv1alpha1.LabelSpotInstances + `": "` + spotv1alpha1.SpotInstancesAllowed + `"}}}`
	require.NoError(t, k8s.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, []byte(allow))))
	assert.NotContains(t, try(named), "may not")
	assert.Contains(t, try(unnamed), "spec.gcp.credentialsSecretRef: is not set; unless a SpotInstanceJob that names this SpotInstanceVM has a gcpCredentialsSecretRef: "+
		"namespace "+ns+" may not use the operator's own identity in project my-gcp-project")
}
