package watcher

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice/metadata"
	"github.com/dcnlab/spot-training-operator/test/fakes/metadataserver"
)

// patience bounds every wait.
const (
	patience = 30 * time.Second
	tick     = 5 * time.Millisecond
)

// instance is a node with its metadata server.
type instance struct {
	t      *testing.T
	admin  client.Client
	node   *corev1.Node
	server *metadataserver.Server
}

func newInstance(t *testing.T) *instance {
	t.Helper()
	install(t)
	server, err := metadataserver.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	return &instance{t, admin(t), newNode(t), server}
}

// start the agent, which ends with the test or by the function returned.
func (i *instance) start(c client.Client) (agent *Agent, stop func()) {
	i.t.Helper()
	log := slog.New(slog.DiscardHandler)
	agent = &Agent{Node: i.node.Name, Client: c, Log: log, Metadata: metadata.New(metadata.Options{URL: i.server.URL, Log: log})}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { agent.Run(ctx) })
	stop = func() {
		cancel()
		group.Wait()
	}
	i.t.Cleanup(stop)
	return agent, stop
}

func (i *instance) notice() (nodenotice.Notice, bool) {
	i.t.Helper()
	var node corev1.Node
	require.NoError(i.t, i.admin.Get(i.t.Context(), client.ObjectKeyFromObject(i.node), &node))
	return nodenotice.FromNode(&node, time.Now())
}

func (i *instance) eventually(what string, is func() bool) {
	i.t.Helper()
	require.Eventually(i.t, is, patience, tick, what)
}

func (i *instance) awaitNotice(source nodenotice.Source) (notice nodenotice.Notice) {
	i.t.Helper()
	i.eventually("a notice of "+string(source), func() bool {
		is, ok := i.notice()
		notice = is
		return ok && is.Source == source
	})
	return notice
}

func (i *instance) awaitNone() {
	i.t.Helper()
	i.eventually("no notice", func() bool { _, ok := i.notice(); return !ok })
}

func (i *instance) awaitFollowing() {
	i.t.Helper()
	i.eventually("both keys are followed", func() bool { return i.server.Hanging() == 2 })
}

func TestAPreemptionIsOnTheNodeAtOnce(t *testing.T) {
	i := newInstance(t)
	i.start(agentClient(t, i.node.Name))
	i.awaitFollowing()
	_, ok := i.notice()
	require.False(t, ok)

	at := i.server.Set(metadata.KeyPreempted, "TRUE")
	notice := i.awaitNotice(nodenotice.MetadataServer)
	t.Logf("seen after %s, on the node within %s", notice.Time.Sub(at), time.Since(at))
	assert.WithinRange(t, notice.Time, at, time.Now())
}

func TestANoticeThatIsWithdrawn(t *testing.T) {
	i := newInstance(t)
	i.start(agentClient(t, i.node.Name))
	i.awaitFollowing()

	i.server.Set(metadata.KeyMaintenance, "TERMINATE_ON_HOST_MAINTENANCE")
	i.awaitNotice(nodenotice.HostMaintenance)
	i.server.Set(metadata.KeyMaintenance, "NONE")
	i.awaitNone()
	i.server.Set(metadata.KeyMaintenance, "TERMINATE_ON_HOST_MAINTENANCE")
	i.awaitNotice(nodenotice.HostMaintenance)
	i.server.Set(metadata.KeyPreempted, "TRUE")
	i.awaitNotice(nodenotice.MetadataServer)
}

func TestAnInstanceThatComesBackUnderItsNode(t *testing.T) {
	i := newInstance(t)
	before := nodenotice.Notice{Source: nodenotice.MetadataServer, Time: time.Now()}
	require.NoError(t, nodenotice.Mark(t.Context(), i.admin, i.node.Name, before))
	c := agentClient(t, i.node.Name)

	// While the server says nothing, nothing is known.
	i.server.Have(metadataserver.Unavailable)
	_, stop := i.start(c)
	i.eventually("it is asked", func() bool { return i.server.Requests() >= 2 })
	stop()
	_, ok := i.notice()
	assert.True(t, ok)

	i.server.Have(metadataserver.None)
	i.start(c)
	i.awaitNone()
}

func TestNoticesOfOthersStay(t *testing.T) {
	i := newInstance(t)
	before := nodenotice.Notice{Source: nodenotice.ComputeOperation, Time: time.Now()}
	require.NoError(t, nodenotice.Mark(t.Context(), i.admin, i.node.Name, before))
	i.start(agentClient(t, i.node.Name))
	i.awaitFollowing()
	i.server.Set(metadata.KeyMaintenance, "TERMINATE_ON_HOST_MAINTENANCE")
	i.server.Set(metadata.KeyMaintenance, "NONE")
	i.awaitFollowing()
	notice, ok := i.notice()
	assert.True(t, ok)
	assert.Equal(t, nodenotice.ComputeOperation, notice.Source)
}

// broken is a client whose writes fail for a while.
type broken struct {
	client.Client
	left atomic.Int32
}

func (b *broken) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if b.left.Add(-1) >= 0 {
		return errors.New("the API server cannot be reached")
	}
	return b.Client.Patch(ctx, object, patch, options...)
}

func TestTheAPIServerIsAwayForAWhile(t *testing.T) {
	i := newInstance(t)
	c := &broken{Client: agentClient(t, i.node.Name)}
	c.left.Store(3)
	i.start(c)
	i.awaitFollowing()
	at := i.server.Set(metadata.KeyPreempted, "TRUE")
	notice := i.awaitNotice(nodenotice.MetadataServer)
	assert.Less(t, c.left.Load(), int32(0))
	assert.WithinRange(t, notice.Time, at, at.Add(5*time.Second))
}

func TestHealth(t *testing.T) {
	i := newInstance(t)
	agent, _ := i.start(agentClient(t, i.node.Name))
	i.awaitFollowing()
	answer := httptest.NewRecorder()
	agent.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Equal(t, "ok\n", answer.Body.String())
}
