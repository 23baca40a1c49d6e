// Package installations is what each way to install the operator makes, for tests that install it on an API server without nodes: the
// objects, and the arguments and the environment of the programs.
package installations

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

const (
	// Namespace is where the operator is installed unless an administrator chooses another.
	Namespace = "spot-training-operator-system"

	// JobService is the name of the Deployment, the ServiceAccount and the role of the job service.
	JobService = "spot-training-operator-job-service"
)

// Installation is what one way of installing the operator makes.
type Installation struct {
	Namespace string
	// Objects are all of them but the Deployments.
	Objects []client.Object
	// Manager and JobService run the programs. The latter is empty where it is not installed.
	Manager, JobService appsv1.DeploymentSpec
	// Served are the namespaces that the manager is limited to; none: it serves all.
	Served []string
	// Lifted are the names of the ClusterRoleBindings that OLM makes of RoleBindings.
	Lifted map[string]bool
	// ByOLM are what OLM makes for its own purposes, not from rules of ours, and Environment what it adds to the manager's.
	ByOLM       []client.Object
	Environment []string
}

// Kustomize is what kubectl apply -k makes of a folder of config/ with components of it.
func Kustomize(t testing.TB, folder string, components ...string) *Installation {
	t.Helper()
	return manifests(t, Namespace, build(t, folder, components...))
}

// Objects are those that kubectl apply -k makes of a folder of config/.
func Objects(t testing.TB, folder string) []*unstructured.Unstructured {
	t.Helper()
	return Decode(t, build(t, folder))
}

// KustomizeIn is Kustomize with another namespace in each object and each reference, as an overlay sets it: not in texts.
func KustomizeIn(t testing.TB, namespace, folder string, components ...string) *Installation {
	t.Helper()
	return manifests(t, namespace, strings.ReplaceAll(build(t, folder, components...), "namespace: "+Namespace, "namespace: "+namespace))
}

func build(t testing.TB, folder string, components ...string) string {
	t.Helper()
	overlay := t.TempDir()
	config, err := filepath.Rel(overlay, filepath.Join(apiserver.Root(), "config"))
	require.NoError(t, err)
	text := fmt.Sprintf("resources: [%s/%s]\ncomponents:\n", config, folder)
	for _, component := range components {
		text += fmt.Sprintf("- %s/%s\n", config, component)
	}
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	return run(t, filepath.Join(apiserver.Binaries(), "kubectl"), "kustomize", overlay)
}

// Chart is what helm install makes of the chart in a namespace, on a cluster that serves all that the chart asks for. The values are
// arguments of helm. HELM is the helm command; without it .bin/helm, which make builds.
func Chart(t testing.TB, namespace string, values ...string) *Installation {
	t.Helper()
	helm := cmp.Or(os.Getenv("HELM"), filepath.Join(apiserver.Root(), ".bin", "helm"))
	arguments := []string{
		"template", "release", filepath.Join(apiserver.Root(), "charts", "spot-training-operator"), "--namespace", namespace,
		"--kube-version", "1.37.0", "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
	}
	return manifests(t, namespace, run(t, helm, append(arguments, values...)...))
}

func manifests(t testing.TB, namespace, text string) *Installation {
	t.Helper()
	i := &Installation{Namespace: namespace}
	for _, object := range Decode(t, text) {
		if object.GetKind() != "Deployment" {
			i.Objects = append(i.Objects, object)
			continue
		}
		var deployment appsv1.Deployment
		convert(t, object.Object, &deployment)
		if deployment.Name == JobService {
			i.JobService = deployment.Spec
		} else {
			i.Manager = deployment.Spec
		}
	}
	require.NotEmpty(t, i.Account(), "there is no Deployment of the manager")
	return i
}

// Account is the name of the manager's ServiceAccount.
func (i *Installation) Account() string { return i.Manager.Template.Spec.ServiceAccountName }

// User is who the manager is to the API server.
func (i *Installation) User() string {
	return "system:serviceaccount:" + i.Namespace + ":" + i.Account()
}

// Arguments are those of a program.
func Arguments(program *appsv1.DeploymentSpec) []string {
	return program.Template.Spec.Containers[0].Args
}

// Variables are the environment of a program, but for those that only a kubelet knows.
func (i *Installation) Variables(program *appsv1.DeploymentSpec) []string {
	var variables []string
	for _, variable := range program.Template.Spec.Containers[0].Env {
		value := variable.Value
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil || from.FieldRef.FieldPath != "metadata.namespace" {
				continue
			}
			value = i.Namespace
		}
		variables = append(variables, variable.Name+"="+value)
	}
	return variables
}

// Files are the objects of files of config/, for a namespace.
func Files(t testing.TB, namespace string, files ...string) []client.Object {
	t.Helper()
	var objects []client.Object
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(apiserver.Root(), "config", file))
		require.NoError(t, err)
		for _, object := range Decode(t, strings.ReplaceAll(string(text), Namespace, namespace)) {
			objects = append(objects, object)
		}
	}
	return objects
}

// Decode reads the objects in a YAML text.
func Decode(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func convert(t testing.TB, from map[string]any, into any) {
	t.Helper()
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(from, into))
}

// run runs a command and returns what it prints.
func run(t testing.TB, program string, arguments ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Stdout, command.Stderr = &out, &errs
	require.NoError(t, command.Run(), "%s: %s", command, errs.String())
	return out.String()
}
