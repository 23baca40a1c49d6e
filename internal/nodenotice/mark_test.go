package nodenotice_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
)

// cluster is a client of the API server that counts the patches sent.
type cluster struct {
	client.Client
	mutex   sync.Mutex
	patches int
	// before each patch, for a test that wants to come first.
	before func()
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{before: func() {}}
	plain, err := client.NewWithWatch(api.Config(t), client.Options{})
	require.NoError(t, err)
	c.Client = interceptor.NewClient(plain, interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			c.mutex.Lock()
			c.patches++
			c.mutex.Unlock()
			c.before()
			return w.Patch(ctx, object, patch, options...)
		},
	})
	return c
}

// node of a real API server, with a taint of another writer.
func (c *cluster) node(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "going-"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "training", Effect: corev1.TaintEffectNoExecute}}},
	}
	require.NoError(t, c.Create(t.Context(), node))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.Background(), node)) })
	return node
}

func (c *cluster) read(t *testing.T, node *corev1.Node) *corev1.Node {
	t.Helper()
	var now corev1.Node
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(node), &now))
	return &now
}

func seen(source nodenotice.Source, at time.Time) nodenotice.Notice {
	return nodenotice.Notice{Source: source, Time: at}
}

func taintKeys(node *corev1.Node) []string {
	var keys []string
	for _, taint := range node.Spec.Taints {
		if taint.Key != corev1.TaintNodeNotReady { // the API server's own, of a new node
			keys = append(keys, taint.Key+":"+string(taint.Effect))
		}
	}
	return keys
}

func TestTheFirstNoticeIsMarkedInOnePatch(t *testing.T) {
	c := newCluster(t)
	node := c.node(t)
	at := now.Add(123456789 * time.Nanosecond)

	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.MetadataServer, at)))
	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.ComputeOperation, at.Add(time.Second))))

	assert.Equal(t, 1, c.patches)
	marked := c.read(t, node)
	assert.Equal(t, "2026-05-04T12:00:00.123456789Z", marked.Annotations[spotv1alpha1.AnnotationPreemptionNotice])
	assert.Equal(t, "MetadataServer", marked.Annotations[spotv1alpha1.AnnotationPreemptionSource])
	assert.Equal(t, []string{"dedicated:NoExecute", "training.dcnlab.com/preemption:NoSchedule"}, taintKeys(marked))
	notice, ok := nodenotice.FromNode(marked, now)
	assert.True(t, ok)
	assert.Equal(t, at, notice.Time)
}

func TestANoticeGoesBeforeAMaintenance(t *testing.T) {
	c := newCluster(t)
	node := c.node(t)
	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.HostMaintenance, now)))
	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.MetadataServer, now.Add(time.Minute))))
	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.HostMaintenance, now.Add(time.Hour))))

	notice, ok := nodenotice.FromNode(c.read(t, node), now)
	assert.True(t, ok)
	assert.Equal(t, nodenotice.MetadataServer, notice.Source)
	assert.Equal(t, now.Add(time.Minute), notice.Time)
	assert.Equal(t, 2, c.patches)
}

func TestAPersonsAnnotationStaysAndGetsTheTaint(t *testing.T) {
	c := newCluster(t)
	node := c.node(t)
	node.Annotations = map[string]string{spotv1alpha1.AnnotationPreemptionNotice: "2026-05-04T11:00:00Z"}
	require.NoError(t, c.Update(t.Context(), node))

	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.ComputeOperation, now)))

	marked := c.read(t, node)
	assert.Equal(t, map[string]string{spotv1alpha1.AnnotationPreemptionNotice: "2026-05-04T11:00:00Z"}, marked.Annotations)
	assert.Contains(t, taintKeys(marked), "training.dcnlab.com/preemption:NoSchedule")
}

func TestWhatOthersWriteMeanwhileIsKept(t *testing.T) {
	c := newCluster(t)
	node := c.node(t)
	var once sync.Once
	c.before = func() {
		once.Do(func() {
			other := c.read(t, node)
			other.Spec.Taints = append(other.Spec.Taints, corev1.Taint{Key: "late", Effect: corev1.TaintEffectNoSchedule})
			require.NoError(t, c.Update(t.Context(), other))
		})
	}
	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.MetadataServer, now)))

	assert.Equal(t, 2, c.patches, "one was refused")
	assert.Equal(t, []string{"dedicated:NoExecute", "late:NoSchedule", "training.dcnlab.com/preemption:NoSchedule"}, taintKeys(c.read(t, node)))
}

func TestOfSeveralThatMarkAtOnceOneWins(t *testing.T) {
	c := newCluster(t)
	node := c.node(t)
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			assert.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.MetadataServer, now.Add(time.Duration(i)*time.Second))))
		})
	}
	group.Wait()
	assert.Equal(t, []string{"dedicated:NoExecute", "training.dcnlab.com/preemption:NoSchedule"}, taintKeys(c.read(t, node)))
}

func TestClearTakesOnlyItsOwnNoticesOff(t *testing.T) {
	c := newCluster(t)
	node := c.node(t)
	require.NoError(t, nodenotice.Clear(t.Context(), c, node.Name, nodenotice.MetadataServer))
	assert.Zero(t, c.patches, "nothing was there")

	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.ComputeOperation, now)))
	require.NoError(t, nodenotice.Clear(t.Context(), c, node.Name, nodenotice.MetadataServer, nodenotice.HostMaintenance))
	_, ok := nodenotice.FromNode(c.read(t, node), now)
	assert.True(t, ok, "the notice of another source stays")

	require.NoError(t, nodenotice.Clear(t.Context(), c, node.Name, nodenotice.ComputeOperation))
	cleared := c.read(t, node)
	_, ok = nodenotice.FromNode(cleared, now)
	assert.False(t, ok)
	assert.Empty(t, cleared.Annotations)
	assert.Equal(t, []string{"dedicated:NoExecute"}, taintKeys(cleared))

	require.NoError(t, nodenotice.Mark(t.Context(), c, node.Name, seen(nodenotice.MetadataServer, now.Add(time.Hour))))
	notice, ok := nodenotice.FromNode(c.read(t, node), now)
	assert.True(t, ok, "a later notice is a new one")
	assert.Equal(t, now.Add(time.Hour), notice.Time)
}

func TestANodeThatIsGone(t *testing.T) {
	c := newCluster(t)
	err := nodenotice.Mark(t.Context(), c, "gone", seen(nodenotice.MetadataServer, now))
	assert.True(t, apierrors.IsNotFound(err))
	assert.ErrorContains(t, err, "mark node gone as going away")
	assert.NoError(t, nodenotice.Clear(t.Context(), c, "gone", nodenotice.MetadataServer))
}
