package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// expectedSamples are all samples. Those of the seeds are kept as their documents have them.
var expectedSamples = map[string][]string{
	"aiplatform_v1alpha1_agent.yaml":         {"Agent/summarizer", "Agent/translator"},
	"aiplatform_v1alpha1_agentworkflow.yaml": {"AgentWorkflow/nightly-digest"},
	"gcp-credentials-secret.yaml":            {"Secret/gcp-credentials"},
	"kubeadm-join-secret.yaml":               {"Secret/kubeadm-join"},
	"ml_v1_trainingjob.yaml":                 {"TrainingJob/digits"},
	"ml_v1_trainingjob_git.yaml":             {"TrainingJob/sendrecv"},
	"ml_v1_trainingjob_volumes.yaml":         {"TrainingJob/own-data"},
	"ml_v1_trainingjob_sharded.yaml":         {"TrainingJob/digits-sharded"},
	"ml_v1_trainingjob_spot.yaml":            {"TrainingJob/resnet-spot"},
	"ml_v1_trainingjob_jax.yaml":             {"TrainingJob/jax-training"},
	"ml_v1_trainingjob_mpi.yaml":             {"TrainingJob/digits-mpi"},
	"ml_v1_trainingjob_ray.yaml":             {"TrainingJob/ray-training"},
	"ml_v1_trainingjob_tensorflow.yaml":      {"TrainingJob/tensorflow-training"},
	"ml_v1_trainingjob_xgboost.yaml":         {"TrainingJob/digits-xgboost"},
	"ml_v1_trainingjob_s3.yaml":              {"TrainingJob/digits-s3"},
	"ml_v1_trainingjob_gcs.yaml":             {"TrainingJob/digits-gcs"},
	"ml_v1_trainingjob_azure.yaml":           {"TrainingJob/digits-azure"},
	"ml_v1_trainingjob_nfs.yaml":             {"TrainingJob/digits-nfs"},
	"namespace.yaml":                         {"Namespace/ml-training"},
	"seed-001-advanced-resnet152.yaml":       {"TrainingJob/advanced-training"},
	"seed-001-basic-mnist.yaml":              {"TrainingJob/mnist-training"},
	"seed-001-distributed-bert.yaml":         {"TrainingJob/bert-distributed"},
	"seed-001-overview-bert.yaml":            {"TrainingJob/bert-training"},
	"seed-001-resume-gpt.yaml":               {"TrainingJob/gpt-resume"},
	"seed-002-aijob.yaml":                    {"AIJob/inference-job-001"},
	"seed-002-aijobqueue.yaml":               {"AIJobQueue/high-priority-queue"},
	"seed-002-computecluster.yaml":           {"ComputeCluster/gpu-cluster"},
	"seed-003-resnet.yaml":                   {"TrainingJob/resnet-training"},
	"training_v1alpha1_spotinstancejob.yaml": {"SpotInstanceJob/resnet-spot"},
	"training_v1alpha1_spotinstancevm.yaml":  {"SpotInstanceVM/t4-spot"},
}

func TestSamplesAreComplete(t *testing.T) {
	found := map[string][]string{}
	for _, file := range sampleFiles(t) {
		for _, o := range sample(t, file) {
			found[file] = append(found[file], o.GetKind()+"/"+o.GetName())
		}
	}
	assert.Empty(t, cmp.Diff(expectedSamples, found))

	var kustomization struct {
		Resources []string `json:"resources"`
	}
	data, err := os.ReadFile(filepath.Join(samples, "kustomization.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &kustomization))
	assert.ElementsMatch(t, sampleFiles(t), kustomization.Resources)

	kinds := map[string]bool{}
	for _, objects := range found {
		for _, name := range objects {
			kinds[filepath.Dir(name)] = true
		}
	}
	for _, crd := range crds(t) {
		assert.True(t, kinds[crd.Spec.Names.Kind], "there is no sample of %s", crd.Spec.Names.Kind)
	}
}

// Every sample applies as kubectl apply --dry-run=server would apply it, and what the API server makes of it is what the
// Go types can hold.
func TestSamplesApply(t *testing.T) {
	for _, file := range sampleFiles(t) {
		t.Run(file, func(t *testing.T) {
			for _, o := range sample(t, file) {
				err := k8s.Create(t.Context(), o, strictly...)
				if apierrors.IsAlreadyExists(err) && o.GetKind() == "Namespace" {
					continue
				}
				require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
				assertDecodes(t, o)
			}
		})
	}
}

// The status that an example shows is not what a new object has.
func TestSamplesStartWithoutTheirStatus(t *testing.T) {
	for _, o := range sample(t, "seed-003-resnet.yaml") {
		require.NoError(t, k8s.Create(t.Context(), o, strictly...))
		assert.Equal(t, map[string]any{"state": "Pending", "phase": "Pending"}, o.Object["status"])
	}
	for _, o := range sample(t, "seed-002-aijob.yaml") {
		require.NoError(t, k8s.Create(t.Context(), o, strictly...))
		assert.Equal(t, map[string]any{"phase": "Pending"}, o.Object["status"])
	}
}

// A Go client that reads an object and writes it back changes nothing, although it writes every duration and quantity in
// its own way.
func TestSamplesCanBeUpdatedByGoClients(t *testing.T) {
	for _, file := range sampleFiles(t) {
		t.Run(file, func(t *testing.T) {
			for _, o := range sample(t, file) {
				if _, err := scheme.New(o.GroupVersionKind()); err != nil || o.GroupVersionKind().Group == "" {
					continue
				}
				create(t, o)
				created, err := scheme.New(o.GroupVersionKind())
				require.NoError(t, err)
				typed := created.(client.Object)
				require.NoError(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(o), typed))
				typed.SetLabels(map[string]string{"touched": "yes"})
				assert.NoError(t, k8s.Update(t.Context(), typed, client.DryRunAll))
			}
		})
	}
}

func sampleFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(samples)
	require.NoError(t, err)
	var files []string
	for _, entry := range entries {
		if entry.Name() != "kustomization.yaml" {
			files = append(files, entry.Name())
		}
	}
	require.NotEmpty(t, files)
	return files
}

// sample reads the objects of a file. A file that names a key twice is refused.
func sample(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(samples, file))
	require.NoError(t, err)
	var objects []*unstructured.Unstructured
	documents := yamlutil.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	buffer := make([]byte, len(data)+1)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		objects = append(objects, object(t, string(buffer[:n])))
	}
}

// assertDecodes checks that the Go type of an object holds all that the API server returned.
func assertDecodes(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	typed, err := scheme.New(o.GroupVersionKind())
	require.NoError(t, err)
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true))
	_, err = json.Marshal(typed)
	require.NoError(t, err)
}
