package storageversion

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The storage version changes while objects are written, and an object that was visited already is written since: it must
// not be forgotten.
func TestStorageVersionChangesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string][]string{
		"back":              {"v1beta1"},
		"back and forth":    {"v1beta1", "v1"},
		"back, forth, back": {"v1beta1", "v1", "v1beta1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKind(t, "v1beta1")
			k.create(20)
			k.storeAs("v1")
			k.start(&traffic{before: nth(1, http.MethodPatch, "/job-010", func(*http.Request) {
				for _, version := range versions {
					k.storeAs(version)
					if version == "v1beta1" {
						k.write("job-000", version)
					}
				}
			})})
			end := versions[len(versions)-1]

			k.awaitStored(end)
			assert.Equal(t, map[string]int{end: 20}, k.stored())
		})
	}
}

// Another change of the CRD's spec might as well have been two of the storage version: the round is made again.
func TestSpecOfTheCRDChangesMeanwhile(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(10)
	k.storeAs("v1")
	r := k.start(&traffic{before: nth(1, http.MethodPatch, "/job-005", func(*http.Request) {
		k.change(func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Names.Categories = append(crd.Spec.Names.Categories, "more")
		})
	})})

	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 10}, k.stored())
	assert.Len(t, r.made(http.MethodPatch, "/namespaces/default/trainingjobs/"), 20)
}

// Another client writes the CRD just before the migrator does, without changing its spec: there is nothing to start over for.
func TestOthersWriteTheCRDMeanwhile(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(10)
	k.storeAs("v1")

	r := k.start(&traffic{before: nth(1, http.MethodPatch, "/"+k.crd+"/status", func(*http.Request) {
		k.change(func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Annotations = map[string]string{"example.com/installed-alongside": "other"}
		})
	})})

	k.awaitStored("v1")
	assert.Len(t, r.made(http.MethodPatch, "/namespaces/default/trainingjobs/"), 10, "each object was written once")
	assert.Len(t, r.made(http.MethodPatch, "/"+k.crd+"/status"), 2)
	assert.Equal(t, "other", k.definition().Annotations["example.com/installed-alongside"])
}

func TestObjectsComeAndGoMeanwhile(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(10)
	k.storeAs("v1")

	k.start(&traffic{before: nth(1, http.MethodPatch, "/job-004", func(*http.Request) {
		for _, item := range []string{"job-004", "job-009"} {
			object := &metav1.PartialObjectMetadata{}
			object.SetGroupVersionKind(k.list().GroupVersionKind())
			object.Kind, object.Name, object.Namespace = "TrainingJob", item, "default"
			assert.NoError(t, k.Delete(context.Background(), object))
		}
	})})

	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 8}, k.stored())
}

// The API server has forgotten what the list was begun from: the token of the second page is made so old that etcd has
// compacted its revision away.
func TestListExpiresMeanwhile(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(20)
	k.storeAs("v1")
	require.NoError(t, storage().Compact(t.Context()))
	var aged atomic.Int32

	r := k.start(&traffic{before: func(r *http.Request) {
		token := r.URL.Query().Get("continue")
		if token == "" || aged.Load() > 0 {
			return
		}
		aged.Add(1)
		query := r.URL.Query()
		query.Set("continue", age(t, token))
		r.URL.RawQuery = query.Encode()
	}})

	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 20}, k.stored())
	assert.EqualValues(t, 1, aged.Load())
	assert.Len(t, r.made(http.MethodGet, "/"+k.group+"/v1/trainingjobs"), 4, "three pages, one of them asked for twice")
	assert.Len(t, r.made(http.MethodPatch, "/namespaces/default/trainingjobs/"), 20)
}

// age makes a continue token one of the first revision.
func age(t *testing.T, token string) string {
	data, err := base64.RawURLEncoding.DecodeString(token)
	assert.NoError(t, err)
	content := map[string]any{}
	assert.NoError(t, json.Unmarshal(data, &content))
	assert.Contains(t, content, "rv")
	content["rv"] = 1
	data, err = json.Marshal(content)
	assert.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(data)
}

// write changes a job until it is stored in a version.
func (k *kind) write(name, version string) {
	k.t.Helper()
	for attempt := range 1000 {
		job := &unstructured.Unstructured{}
		job.SetAPIVersion(k.group + "/v1")
		job.SetKind("TrainingJob")
		job.SetNamespace("default")
		job.SetName(name)
		patch := fmt.Appendf(nil, `{"metadata": {"labels": {"attempt": "%d"}}}`, attempt)
		require.NoError(k.t, k.Patch(context.Background(), job, client.RawPatch("application/merge-patch+json", patch)))
		objects, err := storage().Objects(context.Background(), k.group, "trainingjobs")
		require.NoError(k.t, err)
		if objects["default/"+name].APIVersion == k.group+"/"+version {
			return
		}
	}
	require.Fail(k.t, "the API server does not store "+name+" as "+version)
}
