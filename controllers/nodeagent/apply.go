package nodeagent

import (
	"context"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// write applies the DaemonSet: the fields that it has are the operator's, whoever changed them.
func (r *Reconciler) write(ctx context.Context, set *appsv1.DaemonSet) error {
	content, err := json.Marshal(struct {
		*appsv1.DaemonSet
		// The status is not ours to write.
		Status *struct{} `json:"status,omitempty"`
	}{DaemonSet: set})
	if err != nil {
		return err
	}
	target := &appsv1.DaemonSet{}
	target.Namespace, target.Name = set.Namespace, set.Name
	if err := r.Patch(ctx, target, client.RawPatch(types.ApplyPatchType, content), fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	r.written = target.Generation
	return nil
}
