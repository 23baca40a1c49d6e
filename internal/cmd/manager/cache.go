package manager

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/controllers/nodeagent"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/workerpool"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

// cachedObjects says what of each kind is kept in the manager's cache.
func cachedObjects(o options) map[client.Object]cache.ByObject {
	objects := trainingjob.CachedObjects()
	objects[&corev1.Node{}] = cache.ByObject{Transform: nodenotice.Trim}
	maps.Copy(objects, nodeagent.CachedObjects(o.webhooks.namespace))
	maps.Copy(objects, workerpool.CachedObjects())
	return objects
}
