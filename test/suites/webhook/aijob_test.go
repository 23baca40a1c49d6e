package webhook_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// as is a client of a user, who may do anything with jobs.
func as(t *testing.T, name string) client.Client {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "aijobs-"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{aiplatformv1alpha1.GroupVersion.Group}, Resources: []string{"aijobs", "agentworkflows"}, Verbs: []string{"*"}},
			{APIGroups: []string{mlv1.GroupVersion.Group}, Resources: []string{"trainingjobs"}, Verbs: []string{"*"}},
		},
	}
	require.NoError(t, k8s.Create(t.Context(), role))
	require.NoError(t, k8s.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}))
	config := rest.CopyConfig(restConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return user
}

func TestAIJobsTellTheirUser(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	alice, bob, jobService := as(t, "alice"), as(t, "bob"), as(t, jobServiceUser)
	userOf := func(name string) string {
		t.Helper()
		var job aiplatformv1alpha1.AIJob
		require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &job))
		return job.Annotations[aiplatformv1alpha1.AnnotationUser]
	}

	eventually(t, "the API server calls the webhook", func() bool {
		probe := builders.AIJob("probe").Namespace(ns).ToCreate()
		return alice.Create(t.Context(), probe, client.DryRunAll) == nil && probe.Annotations[aiplatformv1alpha1.AnnotationUser] == "alice"
	})

	job := builders.AIJob("mine").Namespace(ns).Annotation(aiplatformv1alpha1.AnnotationUser, "bob").ToCreate()
	require.NoError(t, alice.Create(t.Context(), job))
	assert.Equal(t, "alice", userOf("mine"), "no user can use up another's limits")

	for name, patch := range map[string]string{
		"changed": `{"metadata":{"annotations":{"aiplatform.example.com/user":"bob"}}}`,
		"removed": `{"metadata":{"annotations":{"aiplatform.example.com/user":null}}}`,
		"all":     `{"metadata":{"annotations":null}}`,
	} {
		require.NoError(t, bob.Patch(t.Context(), job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), name)
		assert.Equal(t, "alice", userOf("mine"), name)
	}

	require.NoError(t, jobService.Create(t.Context(), builders.AIJob("hers").Namespace(ns).Annotation(aiplatformv1alpha1.AnnotationUser, "carol").ToCreate()))
	assert.Equal(t, "carol", userOf("hers"), "the job service creates jobs for others")

	// The operator creates the AIJobs of a workflow for the one who created the workflow.
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{
		Name: "digest", Namespace: ns, Annotations: map[string]string{aiplatformv1alpha1.AnnotationUser: "bob"},
	}}
	workflow.Spec.Stages = []aiplatformv1alpha1.Stage{{Name: "read", Agent: "reader"}}
	require.NoError(t, alice.Create(t.Context(), workflow))
	assert.Equal(t, "alice", workflow.Annotations[aiplatformv1alpha1.AnnotationUser])
}

func TestTrainingJobsTellTheirUser(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	alice, bob, jobService := as(t, "alice"), as(t, "bob"), as(t, jobServiceUser)
	userOf := func(name string) string {
		t.Helper()
		var job mlv1.TrainingJob
		require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &job))
		return job.Annotations[aiplatformv1alpha1.AnnotationUser]
	}
	claims := map[string]string{aiplatformv1alpha1.AnnotationUser: "bob", "example.com/note": "mine"}
	job := builders.TrainingJob("mine").Namespace(ns).Annotations(claims).ToCreate()
	eventually(t, "the API server lets alice create jobs", func() bool { return alice.Create(t.Context(), job) == nil })
	assert.Equal(t, "alice", userOf("mine"), "no user can use up another's limits")
	assert.Equal(t, "mine", job.Annotations["example.com/note"])
	assert.NotEmpty(t, job.Spec.Image, "the image is pinned as well")

	for name, patch := range map[string]string{
		"changed":      `{"metadata":{"annotations":{"aiplatform.example.com/user":"bob"}}}`,
		"removed":      `{"metadata":{"annotations":{"aiplatform.example.com/user":null}}}`,
		"all":          `{"metadata":{"annotations":null}}`,
		"and the spec": `{"metadata":{"annotations":null},"spec":{"suspend":true,"image":null}}`,
	} {
		require.NoError(t, bob.Patch(t.Context(), job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))), name)
		assert.Equal(t, "alice", userOf("mine"), name)
	}

	theirs := builders.TrainingJob("theirs").Namespace(ns).Annotations(claims).ToCreate()
	eventually(t, "the API server lets the job service create jobs", func() bool { return jobService.Create(t.Context(), theirs) == nil })
	assert.Equal(t, jobServiceUser, userOf("theirs"), "no client creates TrainingJobs for others")
}

// The policy that is installed beside the webhooks holds while these do not answer.
func TestAForgedUserIsRefusedWithoutTheWebhooks(t *testing.T) {
	ns := namespace(t)
	applyUserPolicy(t, ns)
	alice, jobService := as(t, "alice"), as(t, "the job service")
	mayName := []rbacv1.PolicyRule{{APIGroups: []string{aiplatformv1alpha1.GroupVersion.Group}, Resources: []string{"aijobs/user"}, Verbs: []string{"update"}}}
	ofCluster := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "names-users-"}, Rules: mayName}
	ofNamespace := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "names-users"}, Rules: mayName}
	require.NoError(t, k8s.Create(t.Context(), ofCluster))
	require.NoError(t, k8s.Create(t.Context(), ofNamespace))
	require.NoError(t, k8s.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ofCluster.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ofCluster.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "the job service"}},
	}))
	require.NoError(t, k8s.Create(t.Context(), &rbacv1.RoleBinding{ // which an admin of the namespace can make
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "names-users"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "names-users"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}))
	told := map[string]string{aiplatformv1alpha1.AnnotationUser: "bob"}
	forged := map[string]func(name string) client.Object{
		"an AIJob": func(name string) client.Object {
			return builders.AIJob(name).Namespace(ns).Annotation(aiplatformv1alpha1.AnnotationUser, "bob").ToCreate()
		},
		"a TrainingJob": func(name string) client.Object {
			return builders.TrainingJob(name).Namespace(ns).Annotations(told).ToCreate()
		},
		"an AgentWorkflow": func(name string) client.Object {
			workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Annotations: told}}
			workflow.Spec.Stages = []aiplatformv1alpha1.Stage{{Name: "read", Agent: "reader"}}
			return workflow
		},
	}
	for kind, make := range forged {
		t.Run(kind, func(t *testing.T) {
			eventually(t, "it is refused", func() bool {
				err := alice.Create(t.Context(), make("probe"), client.DryRunAll)
				return err != nil && strings.Contains(err.Error(), "names bob, but the job is created by alice: leave the annotation out")
			})
			own := make("own")
			own.SetAnnotations(nil)
			require.NoError(t, alice.Create(t.Context(), own), "without the annotation")
			own.SetAnnotations(told)
			require.ErrorContains(t, alice.Update(t.Context(), own), "cannot be changed")
			mine := make("mine")
			mine.SetAnnotations(map[string]string{aiplatformv1alpha1.AnnotationUser: "alice"})
			require.NoError(t, alice.Create(t.Context(), mine), "with her own name")
			mine.SetLabels(map[string]string{"a": "b"})
			require.NoError(t, alice.Update(t.Context(), mine))
			eventually(t, "the job service may", func() bool { return jobService.Create(t.Context(), make("theirs")) == nil })
		})
	}
}

// applyUserPolicy installs the policy of config/job-user for one namespace.
func applyUserPolicy(t *testing.T, ns string) {
	t.Helper()
	for _, document := range documents(readFile(t, root+"/config/job-user/policy.yaml")) {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &object.Object))
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			require.NoError(t, unstructured.SetNestedStringMap(object.Object, map[string]string{corev1.LabelMetadataName: ns},
				"spec", "matchResources", "namespaceSelector", "matchLabels"))
		}
		require.NoError(t, k8s.Create(t.Context(), object))
		t.Cleanup(func() { require.NoError(t, k8s.Delete(context.Background(), object)) })
	}
}
