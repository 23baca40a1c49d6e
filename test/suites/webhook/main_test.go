// Package webhook_test checks the admission webhooks as a user meets them: a real API server calls them over TLS, by
// the configurations that are installed, and what they ask the cluster they ask with the operator's own permissions.
//
// KUBEBUILDER_ASSETS is the folder of etcd and kube-apiserver; without it that of the local cluster is used.
package webhook_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

const (
	root = "../../.."

	// The operator's namespace, and who it is there.
	operatorNamespace = "spot-training-operator-system"
	operatorAccount   = "spot-training-operator-controller-manager"
	operatorUser      = "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount

	jobServiceUser = "system:serviceaccount:" + operatorNamespace + ":spot-training-operator-job-service"

	// configuration is the name of both webhook configurations.
	configuration = "spot-training-operator"
)

var (
	scheme     = apiserver.Scheme(mlv1.AddToScheme, spotv1alpha1.AddToScheme, aiplatformv1alpha1.AddToScheme)
	server     = apiserver.New(apiserver.OwnCRDs)
	restConfig *rest.Config
	k8s        client.Client
)

func TestMain(m *testing.M) {
	server.MainStarted(m, func(config *rest.Config) error {
		restConfig = config
		return start(context.Background())
	})
}

// start gives the operator the permissions of an installation.
func start(ctx context.Context) (err error) {
	if k8s, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}); err != nil {
		return err
	}
	return grant(ctx)
}

// grant gives the operator's ServiceAccount the permissions of config/, and no others.
func grant(ctx context.Context) error {
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: operatorNamespace, Name: operatorAccount}
	objects, err := installations.ManagerRights(account)
	if err != nil {
		return err
	}
	for _, file := range []string{
		"rbac/leader_election_role.yaml", "rbac/node_agent_manager_role.yaml", "rbac/node_join_role.yaml",
		"webhook-self/role.yaml", "webhook-self/cluster_role.yaml",
	} {
		read, err := rbacObjects(filepath.Join(root, "config", file))
		if err != nil {
			return err
		}
		objects = append(objects, read...)
	}
	for _, role := range []string{"leader-election-role", "node-agent-manager", "node-join-role"} {
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: role}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		})
	}
	for _, object := range objects {
		if object.GetNamespace() == "system" { // what kustomize makes of it
			object.SetNamespace(operatorNamespace)
		}
		if err := k8s.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

func rbacObjects(file string) ([]client.Object, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []client.Object
	for _, document := range documents(data) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		object, err := scheme.New(kind.GroupVersionKind())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		list = append(list, object.(client.Object))
	}
	return list, nil
}

// namespace makes a namespace for one test.
func namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, k8s.Create(t.Context(), ns))
	return ns.Name
}
