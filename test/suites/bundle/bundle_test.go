// Package bundle_test checks what operator-sdk's own checks of the OLM bundle leave open: that what the bundle promises
// and what is in it agree.
package bundle_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../../.."
	manifests = root + "/bundle/manifests"
)

// clusterServiceVersion is what the tests read of it.
type clusterServiceVersion struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Version        string                  `json:"version"`
		MinKubeVersion string                  `json:"minKubeVersion"`
		Description    string                  `json:"description"`
		Replaces       string                  `json:"replaces"`
		RelatedImages  []relatedImage          `json:"relatedImages"`
		InstallModes   []installMode           `json:"installModes"`
		CRDs           struct{ Owned []owned } `json:"customresourcedefinitions"`
		Install        struct {
			Spec struct {
				Deployments []struct {
					Name string                `json:"name"`
					Spec appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
				Permissions        []permission `json:"permissions"`
				ClusterPermissions []permission `json:"clusterPermissions"`
			} `json:"spec"`
		} `json:"install"`
	} `json:"spec"`
}

type relatedImage struct{ Name, Image string }

type installMode struct {
	Type      string
	Supported bool
}

type permission struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

type owned struct {
	Kind, Name, Version, Description, DisplayName string

	Resources                          []struct{ Kind string }
	SpecDescriptors, StatusDescriptors []descriptor
}

type descriptor struct{ Path, DisplayName, Description string }

func csv(t *testing.T) clusterServiceVersion {
	t.Helper()
	var read clusterServiceVersion
	load(t, filepath.Join(manifests, "spot-training-operator.clusterserviceversion.yaml"), &read)
	return read
}

func load(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, into), path)
}

func crds(t *testing.T) map[string]apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	all := map[string]apiextensionsv1.CustomResourceDefinition{}
	for _, o := range objects(t) {
		if o.GetKind() == "CustomResourceDefinition" {
			data, err := json.Marshal(o.Object)
			require.NoError(t, err)
			var crd apiextensionsv1.CustomResourceDefinition
			require.NoError(t, json.Unmarshal(data, &crd))
			all[crd.Name] = crd
		}
	}
	require.NotEmpty(t, all)
	return all
}

// objects are all manifests of the bundle.
func objects(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	require.NoError(t, err)
	var all []unstructured.Unstructured
	for _, file := range files {
		var o unstructured.Unstructured
		load(t, file, &o.Object)
		all = append(all, o)
	}
	return all
}

func examples(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	require.NoError(t, json.Unmarshal([]byte(csv(t).Metadata.Annotations["alm-examples"]), &all))
	return all
}

func TestVersionIsTheTrees(t *testing.T) {
	data, err := os.ReadFile(root + "/VERSION")
	require.NoError(t, err)
	version := strings.TrimSpace(string(data))
	read := csv(t)
	assert.Equal(t, version, read.Spec.Version)
	assert.Equal(t, "spot-training-operator.v"+version, read.Metadata.Name)
	images := map[string]string{}
	for _, image := range read.Spec.RelatedImages {
		images[image.Name] = image.Image
	}
	assert.Equal(t, map[string]string{
		"manager":         "registry.example.com/dcnlab/spot-training-operator:v" + version,
		"training-worker": "registry.example.com/dcnlab/spot-training-operator-worker:v" + version,
		// The image of both agents is the manager's own.
		"agents": "registry.example.com/dcnlab/spot-training-operator:v" + version,
	}, images)
	assert.Equal(t, images["manager"], read.Metadata.Annotations["containerImage"])
}

// A cluster without access to the Internet mirrors the related images, and those alone.
func TestEveryImageIsARelatedImage(t *testing.T) {
	read := csv(t)
	var related []string
	for _, image := range read.Spec.RelatedImages {
		related = append(related, image.Image)
	}
	deployments := read.Spec.Install.Spec.Deployments
	require.Len(t, deployments, 2)
	for _, deployment := range deployments {
		pod := deployment.Spec.Template.Spec
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			assert.Contains(t, related, container.Image)
			for _, variable := range container.Env {
				if strings.HasPrefix(variable.Name, "RELATED_IMAGE_") {
					assert.Contains(t, related, variable.Value, variable.Name)
				}
			}
		}
	}
}

// One of the two without the other would keep the operator from becoming available.
func TestTheManagerMakesTheCertificateOfTheJobService(t *testing.T) {
	mounted, made := false, false
	for _, deployment := range csv(t).Spec.Install.Spec.Deployments {
		pod := deployment.Spec.Template.Spec
		made = made || slices.Contains(pod.Containers[0].Args, "--job-service-cert-mode=self")
		mounted = mounted || slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil })
	}
	assert.True(t, made)
	assert.True(t, mounted)
	for _, object := range objects(t) {
		if object.GetKind() == "Service" && object.GetName() == "spot-training-operator-job-service" {
			ports, _, err := unstructured.NestedSlice(object.Object, "spec", "ports")
			require.NoError(t, err)
			assert.Equal(t, "https", ports[0].(map[string]any)["appProtocol"])
			return
		}
	}
	assert.Fail(t, "the bundle has no Service spot-training-operator-job-service")
}

// OLM takes the operator as installed only when all of its Deployments are available: the job service must come up with nothing but
// what is in the bundle, and cost next to nothing while it is not used.
func TestTheJobServiceNeedsNothingBesideTheBundle(t *testing.T) {
	for _, deployment := range csv(t).Spec.Install.Spec.Deployments {
		if deployment.Name != "spot-training-operator-job-service" {
			continue
		}
		assert.EqualValues(t, 1, *deployment.Spec.Replicas)
		pod := deployment.Spec.Template.Spec
		for _, volume := range pod.Volumes {
			if volume.Secret != nil {
				assert.Equal(t, "spot-training-operator-job-service-certificate", volume.Secret.SecretName, "which the manager makes")
				continue
			}
			require.NotNil(t, volume.EmptyDir, "volume %s", volume.Name)
			assert.False(t, volume.EmptyDir.SizeLimit.IsZero(), "volume %s cannot fill the disk of the node", volume.Name)
		}
		container := pod.Containers[0]
		assert.Contains(t, container.Args, "--metrics-secure", "there is no NetworkPolicy in the bundle")
		assert.Contains(t, container.Args, "--tls-cert-file=/etc/job-service/tls/tls.crt")
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
			assert.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
		}
		for _, argument := range container.Args {
			assert.NotContains(t, argument, "keep-jobs-in-data-dir", "its volume ends with the pod")
		}
		for _, from := range container.EnvFrom {
			assert.True(t, *from.SecretRef.Optional, from.SecretRef.Name)
		}
		for _, variable := range container.Env {
			assert.False(t, variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil, variable.Name)
		}
		requests := container.Resources.Requests
		assert.LessOrEqual(t, requests.Cpu().MilliValue(), int64(50))
		assert.LessOrEqual(t, requests.Memory().Value(), int64(64<<20))
		return
	}
	assert.Fail(t, "the bundle has no Deployment spot-training-operator-job-service")
}

func TestAnnotations(t *testing.T) {
	read := csv(t)
	annotations := read.Metadata.Annotations
	assert.Less(t, len(annotations["description"]), 140)
	assert.Regexp(t, `^\d{4}-\d{2}-\d{2}T00:00:00Z$`, annotations["createdAt"], "the day of the release, not the time of the build")
	assert.Equal(t, []installMode{
		{"OwnNamespace", true}, {"SingleNamespace", true}, {"MultiNamespace", true}, {"AllNamespaces", true},
	}, read.Spec.InstallModes)
}

// The namespace that OLM's console suggests is that of a deployment with kustomize, under the same Pod Security level.
func TestSuggestedNamespaceIsThatOfKustomize(t *testing.T) {
	annotations := csv(t).Metadata.Annotations
	var suggested, deployed corev1.Namespace
	require.NoError(t, json.Unmarshal([]byte(annotations["operatorframework.io/suggested-namespace-template"]), &suggested))
	load(t, root+"/config/manager/namespace.yaml", &deployed)
	assert.Equal(t, annotations["operatorframework.io/suggested-namespace"], suggested.Name)
	assert.Equal(t, "spot-training-operator-"+deployed.Name, suggested.Name)
	delete(deployed.Labels, "control-plane")
	assert.Equal(t, deployed.Labels, suggested.Labels)
}

func TestEveryKindIsDescribed(t *testing.T) {
	definitions := crds(t)
	kinds := csv(t).Spec.CRDs.Owned
	described := map[string]bool{}
	for _, kind := range kinds {
		t.Run(kind.Kind+" "+kind.Version, func(t *testing.T) {
			described[kind.Name+" "+kind.Version] = true
			assert.NotEmpty(t, kind.DisplayName)
			assert.NotEmpty(t, kind.Description)
			assert.NotEmpty(t, kind.Resources, "resources")
			assert.NotEmpty(t, kind.StatusDescriptors, "status descriptors")
			fields := topLevelFields(t, definitions[kind.Name], kind.Version)
			for _, field := range fields {
				assert.True(t, slices.ContainsFunc(kind.SpecDescriptors, func(d descriptor) bool { return d.Path == field }),
					"spec.%s has no descriptor: give its Go field a marker operator-sdk:csv:customresourcedefinitions", field)
			}
			for _, d := range slices.Concat(kind.SpecDescriptors, kind.StatusDescriptors) {
				assert.NotEmpty(t, d.DisplayName, d.Path)
				assert.NotEmpty(t, d.Description, d.Path)
			}
		})
	}
	for name, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			assert.Equal(t, version.Served, described[name+" "+version.Name], "%s %s is described when it is served", name, version.Name)
		}
	}
}

func topLevelFields(t *testing.T, definition apiextensionsv1.CustomResourceDefinition, version string) []string {
	t.Helper()
	var fields []string
	for _, v := range definition.Spec.Versions {
		if v.Name == version {
			for field := range v.Schema.OpenAPIV3Schema.Properties["spec"].Properties {
				fields = append(fields, field)
			}
		}
	}
	require.NotEmpty(t, fields)
	return fields
}

// A status in an example misleads: the API server drops it.
func TestEveryKindHasAnExample(t *testing.T) {
	shown := map[string]bool{}
	for _, example := range examples(t) {
		shown[example.GetKind()] = true
		assert.NotContains(t, example.Object, "status", "%s %s", example.GetKind(), example.GetName())
		assert.Empty(t, example.GetNamespace(), "%s %s is created where the user is", example.GetKind(), example.GetName())
	}
	for _, definition := range crds(t) {
		assert.True(t, shown[definition.Spec.Names.Kind], "no example of %s", definition.Spec.Names.Kind)
	}
}

// OLM cannot install a MutatingAdmissionPolicy, and fails over kinds that a cluster may not serve. What is in the bundle
// is installed by OLM in a namespace that the user chooses.
func TestTheBundleHasOnlyWhatOLMInstallsEverywhere(t *testing.T) {
	allowed := []string{"ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "Service"}
	for _, o := range objects(t) {
		assert.Contains(t, allowed, o.GetKind(), "%s: a kind of object that the bundle did not have", o.GetName())
		if o.GetKind() != "ClusterServiceVersion" {
			assert.Empty(t, o.GetNamespace(), "%s %s", o.GetKind(), o.GetName())
		}
	}
}

// What users may do is the same with OLM and without.
func TestUserRolesAreInTheBundle(t *testing.T) {
	bundled := map[string]unstructured.Unstructured{}
	for _, o := range objects(t) {
		bundled[o.GetKind()+" "+o.GetName()] = o
	}
	files, err := filepath.Glob(root + "/config/rbac/*_user_roles.yaml")
	require.NoError(t, err)
	require.Len(t, files, len(crds(t)))
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var role unstructured.Unstructured
			require.NoError(t, yaml.Unmarshal([]byte(document), &role.Object))
			inBundle, found := bundled["ClusterRole spot-training-operator-"+role.GetName()]
			require.True(t, found, "%s: %s is not in the bundle", file, role.GetName())
			assert.Equal(t, role.Object["rules"], inBundle.Object["rules"], role.GetName())
			for label, value := range role.GetLabels() {
				assert.Equal(t, value, inBundle.GetLabels()[label], "%s: %s", role.GetName(), label)
			}
		}
	}
}

// Where OLM installs the operator for some namespaces, it tells the manager which.
func TestTheManagerKeepsToTheNamespacesOfItsOperatorGroup(t *testing.T) {
	for _, deployment := range csv(t).Spec.Install.Spec.Deployments {
		told := slices.ContainsFunc(deployment.Spec.Template.Spec.Containers[0].Env, func(is corev1.EnvVar) bool {
			return is.Name == "WATCH_NAMESPACE" && is.ValueFrom.FieldRef.FieldPath == "metadata.annotations['olm.targetNamespaces']"
		})
		assert.Equal(t, deployment.Name == "spot-training-operator-controller-manager", told, deployment.Name)
	}
}

// The service accounts of the manager, of the node agent and of the job service get what config/ gives them, no more and no less.
func TestPermissionsAreThoseOfTheRoles(t *testing.T) {
	install := csv(t).Spec.Install.Spec
	var metricsAuth, nodeAgent, jobService rbacv1.ClusterRole
	var leader, runsNodeAgent, joinsNodes, asksJobService, keepsCertificate rbacv1.Role
	ofCluster, ofNamespaces := generatedRoles(t)
	load(t, root+"/config/rbac/metrics_auth_role.yaml", &metricsAuth)
	load(t, root+"/config/rbac/node_agent_role.yaml", &nodeAgent)
	load(t, root+"/config/job-service/workload/role.yaml", &jobService)
	load(t, root+"/config/rbac/leader_election_role.yaml", &leader)
	load(t, root+"/config/rbac/node_agent_manager_role.yaml", &runsNodeAgent)
	load(t, root+"/config/rbac/node_join_role.yaml", &joinsNodes)
	load(t, root+"/config/rbac/job_service_token_role.yaml", &asksJobService)
	load(t, root+"/config/job-service/workload/certificate_role.yaml", &keepsCertificate)
	account := "spot-training-operator-controller-manager"
	byAccount := map[string][]rbacv1.PolicyRule{}
	for _, given := range install.ClusterPermissions {
		byAccount[given.ServiceAccountName] = append(byAccount[given.ServiceAccountName], given.Rules...)
	}
	require.Len(t, byAccount, 3)
	assert.Equal(t, jobService.Rules, byAccount["spot-training-operator-job-service"])
	assert.ElementsMatch(t, slices.Concat(ofCluster.Rules, metricsAuth.Rules), byAccount[account])
	assert.Equal(t, nodeAgent.Rules, byAccount["spot-training-operator-node-agent"])
	require.Len(t, install.Permissions, 1)
	assert.Equal(t, account, install.Permissions[0].ServiceAccountName)
	assert.ElementsMatch(t, slices.Concat(ofNamespaces.Rules, leader.Rules, runsNodeAgent.Rules, joinsNodes.Rules, asksJobService.Rules,
		keepsCertificate.Rules), install.Permissions[0].Rules)
}

// generatedRoles are those of config/rbac/role.yaml: of what belongs to no namespace, and of what is in namespaces.
func generatedRoles(t *testing.T) (ofCluster, ofNamespaces rbacv1.ClusterRole) {
	t.Helper()
	data, err := os.ReadFile(root + "/config/rbac/role.yaml")
	require.NoError(t, err)
	documents := strings.Split(strings.TrimPrefix(string(data), "---\n"), "\n---\n")
	require.Len(t, documents, 2)
	require.NoError(t, yaml.UnmarshalStrict([]byte(documents[0]), &ofCluster))
	require.NoError(t, yaml.UnmarshalStrict([]byte(documents[1]), &ofNamespaces))
	require.Equal(t, []string{"manager-role", "manager-namespaces-role"}, []string{ofCluster.Name, ofNamespaces.Name})
	return ofCluster, ofNamespaces
}
