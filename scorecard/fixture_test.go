package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/checks"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

const (
	crdFolder      = "../config/crd/bases"
	samplesFolder  = "../config/samples"
	managerName    = "spot-training-operator-controller-manager"
	bundledVersion = "0.4.0"
)

// samples are the examples that the bundle gets.
var samples = []string{
	"ml_v1_trainingjob", "training_v1alpha1_spotinstancejob", "training_v1alpha1_spotinstancevm", "seed-002-aijob",
	"seed-002-aijobqueue", "seed-002-computecluster", "aiplatform_v1alpha1_agent", "aiplatform_v1alpha1_agentworkflow",
}

// writeBundle writes what the tests read of a bundle: the CRDs, the examples and what the ClusterServiceVersion owns.
func writeBundle(t *testing.T) cluster.Bundle {
	t.Helper()
	folder := t.TempDir()
	manifests := filepath.Join(folder, "manifests")
	require.NoError(t, os.Mkdir(manifests, 0o755))
	files, err := filepath.Glob(filepath.Join(crdFolder, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 8)
	var owned []any
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		read(t, file, &crd)
		write(t, filepath.Join(manifests, filepath.Base(file)), crd)
		owned = append(owned, map[string]any{"name": crd.Name, "kind": crd.Spec.Names.Kind, "version": crd.Spec.Versions[0].Name})
	}
	var examples []any
	for _, sample := range samples {
		text, err := os.ReadFile(filepath.Join(samplesFolder, sample+".yaml"))
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var example map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(document), &example))
			examples = append(examples, example)
		}
	}
	almExamples, err := json.Marshal(examples)
	require.NoError(t, err)
	write(t, filepath.Join(manifests, "clusterserviceversion.yaml"), map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
		"metadata": map[string]any{
			"name": "spot-training-operator.v" + bundledVersion, "annotations": map[string]any{"alm-examples": string(almExamples)},
		},
		"spec": map[string]any{
			"version": bundledVersion, "replaces": "spot-training-operator.v0.3.0",
			"customresourcedefinitions": map[string]any{"owned": owned},
			"install": map[string]any{"strategy": "deployment", "spec": map[string]any{
				"deployments": []any{deployment("job-service", "job-service"), deployment(managerName, "controller-manager")},
			}},
		},
	})
	read, err := cluster.ReadBundle(folder)
	require.NoError(t, err)
	return read
}

// deployment of a ClusterServiceVersion.
func deployment(name, plane string) map[string]any {
	return map[string]any{"name": name, "label": map[string]any{"control-plane": plane}, "spec": map[string]any{
		"selector": map[string]any{},
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "manager", "image": "manager:1"}}}},
	}}
}

func write(t *testing.T, path string, content any) {
	t.Helper()
	text, err := yaml.Marshal(content)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// bench runs tests of the scorecard as its ServiceAccount, with the role that config/scorecard/rbac gives it, in a
// namespace of a real API server.
type bench struct {
	client.Client // the administrator

	t         *testing.T
	config    *rest.Config
	bundle    cluster.Bundle
	namespace string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{Client: startAPI(t), t: t, bundle: writeBundle(t)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scorecard-"}}
	require.NoError(t, b.Create(t.Context(), namespace))
	b.namespace = namespace.Name
	for _, file := range []string{"service_account", "role", "cluster_role"} {
		b.applyRBAC(file)
	}
	b.config = b.asServiceAccount("scorecard")
	return b
}

// applyRBAC puts the objects of a file into the bench's namespace, as kustomize does. The cluster-wide ones get its name,
// so that benches do not share them.
func (b *bench) applyRBAC(file string) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(configFolder, "rbac", file+".yaml"))
	require.NoError(b.t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		require.NoError(b.t, yaml.Unmarshal([]byte(document), &object.Object))
		if strings.HasPrefix(object.GetKind(), "Cluster") {
			object.SetName(b.namespace)
			if _, ok := object.Object["roleRef"]; ok {
				require.NoError(b.t, unstructured.SetNestedField(object.Object, b.namespace, "roleRef", "name"))
			}
		} else {
			object.SetNamespace(b.namespace)
		}
		if subjects, ok := object.Object["subjects"].([]any); ok {
			subjects[0].(map[string]any)["namespace"] = b.namespace
		}
		require.NoError(b.t, b.Create(b.t.Context(), object))
	}
}

// asServiceAccount is how the API server is reached with a token of the ServiceAccount.
func (b *bench) asServiceAccount(name string) *rest.Config {
	b.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	token := &authenticationv1.TokenRequest{}
	require.NoError(b.t, b.SubResource("token").Create(b.t.Context(), account, token))
	config := rest.AnonymousClientConfig(api.Config(b.t))
	config.BearerToken = token.Status.Token
	return config
}

// run runs a test of the scorecard, with the timeout.
func (b *bench) run(name string, timeout time.Duration) v1alpha3.TestResult {
	b.t.Helper()
	for _, test := range checks.All() {
		if test.Name != name {
			continue
		}
		test.Timeout = timeout
		status := test.Execute(b.t.Context(), func() (*cluster.Env, error) { return cluster.Open(b.config, b.bundle, b.namespace) })
		require.Len(b.t, status.Results, 1)
		b.t.Logf("%s: %s %v\n%s", name, status.Results[0].State, status.Results[0].Errors, status.Results[0].Log)
		return status.Results[0]
	}
	require.FailNow(b.t, "no such test", name)
	return v1alpha3.TestResult{}
}

// passes runs the test and expects it to pass and to leave nothing behind.
func (b *bench) passes(name string) {
	b.t.Helper()
	got := b.run(name, time.Minute)
	require.Equal(b.t, v1alpha3.PassState, got.State, "%v", got.Errors)
	b.isClean()
}

// fails runs the test and expects it to fail for the reason, and to leave nothing behind.
func (b *bench) fails(name, reason string) {
	b.t.Helper()
	got := b.run(name, 2*time.Second)
	require.Equal(b.t, v1alpha3.FailState, got.State, "%v", got.Errors)
	require.Contains(b.t, fmt.Sprint(got.Errors), reason)
	b.isClean()
}

// isClean expects that no object of the operator's kinds is left.
func (b *bench) isClean() {
	b.t.Helper()
	for _, crd := range b.bundle.V1CRDs {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(crd.Spec.Group + "/" + crd.Spec.Versions[0].Name)
		list.SetKind(crd.Spec.Names.ListKind)
		require.NoError(b.t, b.List(context.Background(), list))
		require.Empty(b.t, list.Items, "objects are left behind")
	}
}

const (
	// waitForAPI is how long the API server may take to serve a changed definition.
	waitForAPI = 30 * time.Second
	pollAPI    = 200 * time.Millisecond
)
