// Package operatorcondition tells the Operator Lifecycle Manager (OLM) whether the operator may be upgraded now.
//
// OLM makes an OperatorCondition for the ClusterServiceVersion that it installed, names it to the operator in the
// environment and lets the operator's ServiceAccount read and write it. While the condition Upgradeable in its spec is
// False, OLM does not replace that version by the next one.
package operatorcondition

import (
	"context"
	"fmt"
	"os"
	"strings"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// NameVariable is the environment variable in which OLM names the OperatorCondition.
	NameVariable = "OPERATOR_CONDITION_NAME"
	// NamespaceVariable is the environment variable that names the namespace of the manager and of the OperatorCondition.
	NamespaceVariable = "POD_NAMESPACE"
)

// namespaceFile names the namespace of a pod that mounts the token of its ServiceAccount.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Verdict says whether the operator may be upgraded, and why.
type Verdict struct {
	// Upgradeable is the status of the condition.
	Upgradeable bool
	// Reason is one word in CamelCase.
	Reason string
	// Message is for people.
	Message string
}

// FromEnvironment returns the name of the OperatorCondition, or false when the operator was not installed by OLM. It is an
// error when there is a name but no namespace.
func FromEnvironment() (types.NamespacedName, bool, error) {
	name := os.Getenv(NameVariable)
	if name == "" {
		return types.NamespacedName{}, false, nil
	}
	namespace := os.Getenv(NamespaceVariable)
	if namespace == "" {
		content, err := os.ReadFile(namespaceFile)
		if err != nil {
			return types.NamespacedName{}, false, fmt.Errorf("%s names the OperatorCondition %s, but its namespace is not known: "+
				"set %s to the namespace of the manager: %w", NameVariable, name, NamespaceVariable, err)
		}
		namespace = strings.TrimSpace(string(content))
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true, nil
}

// condition is the condition Upgradeable in the spec of one OperatorCondition.
type condition struct {
	key    types.NamespacedName
	client client.Client
}

// set writes the condition, when it is not as it should be. It does nothing in a cluster that does not serve
// OperatorConditions: nothing would read it there.
func (c *condition) set(ctx context.Context, verdict Verdict) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := &operatorsv2.OperatorCondition{}
		if err := c.client.Get(ctx, c.key, object); err != nil {
			return err
		}
		before := object.DeepCopy()
		if !meta.SetStatusCondition(&object.Spec.Conditions, metav1.Condition{
			Type: operatorsv2.Upgradeable, Status: statusOf(verdict), Reason: verdict.Reason, Message: verdict.Message,
		}) {
			return nil
		}
		return c.client.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if err == nil || meta.IsNoMatchError(err) {
		return nil
	}
	return fmt.Errorf("write the condition %s of the OperatorCondition %s: %w", operatorsv2.Upgradeable, c.key, err)
}

func statusOf(verdict Verdict) metav1.ConditionStatus {
	if verdict.Upgradeable {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
