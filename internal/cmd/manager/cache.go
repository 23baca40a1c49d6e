package manager

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/internal/preemption"
)

// cachedObjects says what of each kind is kept in the manager's cache.
func cachedObjects() map[client.Object]cache.ByObject {
	objects := trainingjob.CachedObjects()
	objects[&corev1.Node{}] = cache.ByObject{Transform: preemption.Trim}
	return objects
}
