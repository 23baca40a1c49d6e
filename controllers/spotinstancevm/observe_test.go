package spotinstancevm

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

// podLists lists pods from the API server by the indices of the cache, and finds nothing else. Something happens after the first list.
type podLists struct {
	client.Client

	happens func()
}

func (l *podLists) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	by := (&client.ListOptions{}).ApplyOptions(options)
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return nil
	}
	if err := l.Client.List(ctx, pods, client.InNamespace(by.Namespace), client.HasLabels{spotv1alpha1.LabelSpotInstanceVM}); err != nil {
		return err
	}
	var kept []corev1.Pod
	for _, pod := range pods.Items {
		vm, byVM := by.FieldSelector.RequiresExactMatch(indexVM)
		node, byNode := by.FieldSelector.RequiresExactMatch(indexNode)
		if (!byVM || pod.Labels[spotv1alpha1.LabelSpotInstanceVM] == vm) && (!byNode || pod.Spec.NodeName == node) {
			kept = append(kept, pod)
		}
	}
	pods.Items = kept
	if l.happens != nil {
		l.happens()
		l.happens = nil
	}
	return nil
}

// The scheduler does not wait for a reconciliation to end.
func TestAPIAPodThatIsBoundWhileItIsObservedIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	vm := c.vm("t4")
	now := metav1.Now()
	for _, name := range []string{"t4-first", "t4-later"} {
		vm.Status.ProvisionedInstances = append(vm.Status.ProvisionedInstances, spotv1alpha1.ProvisionedInstance{
			Name: name, Zone: zoneA, State: spotv1alpha1.InstanceRunning, CreationTime: &now, ReadyTime: &now,
		})
		c.boot(fakeInstance(vm, name))
	}
	first := c.pod("t4", "bert", 0)
	c.pod("t4", "bert", 1)
	r := &Reconciler{
		Client: &podLists{Client: c.Client}, Direct: c.Client, Clock: clock.RealClock{}, Pace: defaultPace,
		pods: &podLists{Client: c.Client, happens: func() { c.bind(first, "t4-first") }},
		inventories: inventory.New(inventory.Options{
			Provide: func(ctx context.Context, account inventory.Account) (cloud.Provider, error) {
				return gcp.New(ctx, gcp.Options{Project: account.Project, Credentials: account.Credentials, Endpoint: c.gce.URL()})
			},
			Interval: time.Minute, Clock: clock.RealClock{}, Changed: func(types.NamespacedName) {},
		}),
		Uses:    func([]string) (map[string]queueing.NodeUse, bool) { return nil, true },
		Metrics: metrics.NewSpotInstances(prometheus.NewRegistry()),
		secrets: utilcache.NewExpiring(),
		newName: func() string { return "extra" }, newID: func() string { return "id" },
	}
	o, _, err := r.observe(t.Context(), vm)
	require.NoError(t, err)
	assert.NotContains(t, plan(o).actions, action{actCreate, "t4-extra"}, "there is a node for each pod")
}
