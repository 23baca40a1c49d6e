package storageversion

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/etcd"
)

// patience bounds every wait.
const patience = 3 * time.Minute

// kind is a small TrainingJob with two versions, v1 and v1beta1, in an API group of the test's own. test/suites/upgrade
// migrates the real one.
type kind struct {
	client.Client
	t     *testing.T
	crd   string
	group string
}

var kinds atomic.Int32

// newKind installs the kind; its objects are stored in the given version.
func newKind(t *testing.T, storage string) *kind {
	t.Helper()
	direct, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	k := &kind{Client: direct, t: t, group: fmt.Sprintf("test%d.example.com", kinds.Add(1))}
	k.crd = "trainingjobs." + k.group

	schema := apiextensionsv1.JSONSchemaProps{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(`
type: object
properties:
  spec:
    type: object
    required: [model]
    properties:
      model: {type: string}
      numWorkers: {type: integer, default: 1}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`), &schema))
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = k.crd
	crd.Spec.Group, crd.Spec.Scope = k.group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Kind: "TrainingJob", ListKind: "TrainingJobList", Plural: "trainingjobs", Singular: "trainingjob",
	}
	for _, name := range []string{"v1", "v1beta1"} {
		crd.Spec.Versions = append(crd.Spec.Versions, version{
			Name: name, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		})
	}
	setStorage(crd, storage)
	require.NoError(t, k.Create(t.Context(), crd))
	t.Cleanup(func() {
		// The test's context is over by now.
		if err := client.IgnoreNotFound(k.Delete(context.Background(), crd)); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool { return k.List(t.Context(), k.list()) == nil }, patience, 20*time.Millisecond)
	return k
}

func setStorage(crd *apiextensionsv1.CustomResourceDefinition, storage string) {
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == storage
	}
}

func (k *kind) list() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(k.group + "/v1")
	list.SetKind("TrainingJobList")
	return list
}

// definition reads the CRD.
func (k *kind) definition() *apiextensionsv1.CustomResourceDefinition {
	k.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(k.t, k.Get(context.Background(), client.ObjectKey{Name: k.crd}, crd))
	return crd
}

// change updates the CRD.
func (k *kind) change(change func(*apiextensionsv1.CustomResourceDefinition)) {
	k.t.Helper()
	require.NoError(k.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		crd := k.definition()
		change(crd)
		return k.Update(context.Background(), crd)
	}))
}

// storeAs changes the storage version.
func (k *kind) storeAs(version string) {
	k.t.Helper()
	k.change(func(crd *apiextensionsv1.CustomResourceDefinition) { setStorage(crd, version) })
}

// create makes so many jobs, with a status and with what users add.
func (k *kind) create(count int) {
	k.t.Helper()
	for i := range count {
		job := &unstructured.Unstructured{}
		require.NoError(k.t, yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: %s/v1
kind: TrainingJob
metadata:
  name: job-%03d
  namespace: default
  labels: {team: vision}
  annotations: {example.com/note: keep}
spec: {model: resnet50}
`, k.group, i), &job.Object))
		require.NoError(k.t, k.Create(k.t.Context(), job))
		require.NoError(k.t, k.Status().Patch(k.t.Context(), job,
			client.RawPatch(types.MergePatchType, []byte(`{"status": {"state": "Running", "currentEpoch": 3}}`))))
	}
}

// contents reads all objects as v1, without what a write may change: the resource version.
func (k *kind) contents() map[string]map[string]any {
	k.t.Helper()
	list := k.list()
	require.NoError(k.t, k.List(k.t.Context(), list))
	contents := map[string]map[string]any{}
	for _, item := range list.Items {
		item.SetResourceVersion("")
		contents[item.GetName()] = item.Object
	}
	return contents
}

// stored reads from etcd how many objects are stored in each version.
func (k *kind) stored() map[string]int {
	k.t.Helper()
	objects, err := storage().Objects(k.t.Context(), k.group, "trainingjobs")
	require.NoError(k.t, err)
	count := map[string]int{}
	for _, object := range objects {
		count[strings.TrimPrefix(object.APIVersion, k.group+"/")]++
	}
	return count
}

func storage() etcd.Server { return etcd.Server{URL: api.Etcd()} }

// awaitStored waits until the CRD names these versions as the only ones in which objects are stored.
func (k *kind) awaitStored(versions ...string) {
	k.t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.Eventually(k.t, func() bool {
		err := k.Get(context.Background(), client.ObjectKey{Name: k.crd}, crd)
		return err == nil && slices.Equal(versions, crd.Status.StoredVersions)
	}, patience, 50*time.Millisecond, "status.storedVersions should become %v", versions)
}
