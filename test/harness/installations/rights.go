package installations

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// ManagerRights are the ClusterRoles of a manager that serves all namespaces, as they are generated from the code, and bindings of each to
// the subject. It returns an error for a file that cannot be read or holds anything but ClusterRoles.
func ManagerRights(subject rbacv1.Subject) ([]client.Object, error) {
	file := filepath.Join(apiserver.Root(), "config", "rbac", "role.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rights []client.Object
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		role := &rbacv1.ClusterRole{}
		if err := decoder.Decode(role); errors.Is(err, io.EOF) {
			return rights, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if role.Kind != "ClusterRole" {
			return nil, fmt.Errorf("%s: a %s is no ClusterRole", file, role.Kind)
		}
		rights = append(rights, role, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: roleRef(role.Kind, role.Name), Subjects: []rbacv1.Subject{subject},
		})
	}
}
