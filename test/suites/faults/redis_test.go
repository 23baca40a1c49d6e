package faults

import (
	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/test/harness/redis"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// fault is something that goes wrong, and is well again when do returns.
type fault struct {
	name string
	do   func()
}

// queueKey is on the server of a Redis Cluster that has the queue.
const queueKey = "{jobs}:epoch"

// startRedis has the queue in one server.
func (s *site) startRedis() {
	server := redis.Start(s.t, redis.AppendOnly)
	network := stores.NewProxy(s.t, server.Address)
	s.redisURL = "redis://" + network.Address + "/0"
	s.ofRedis = []fault{
		{"redis killed", func() { s.restart(server.Server, nil) }},
		{"redis killed, its data lost", func() { s.restart(server.Server, server.Forget) }},
		{"network to redis cut", func() { s.cut(network, s.faults["network to redis cut"]%2 == 0) }},
	}
}

// startSentinel has the queue in a primary and a replica, with three Sentinels.
func (s *site) startSentinel() { s.startReplicated(redis.StartSentinel(s.t)) }

// startCluster has the queue in a Redis Cluster of three primaries and three replicas.
func (s *site) startCluster() { s.startReplicated(redis.StartCluster(s.t)) }

func (s *site) startReplicated(servers *redis.Replicated) {
	s.redisURL = servers.URL
	// with does something to the primary of the queue.
	with := func(do func(primary *redis.Server)) func() {
		return func() {
			primary, err := servers.Primary(queueKey)
			if assert.NoError(s.t, err) {
				do(primary)
			}
		}
	}
	s.ofRedis = []fault{
		{"redis primary killed", with(func(primary *redis.Server) { s.restart(primary.Server, nil) })},
		{"redis primary killed, a replica takes over", with(func(primary *redis.Server) {
			s.restart(primary.Server, func() error { return servers.AwaitTakeover(queueKey, primary) })
		})},
		// When it goes on, it believes for a moment that it still is the primary.
		{"redis primary frozen, a replica takes over", with(func(primary *redis.Server) {
			assert.NoError(s.t, primary.Freeze())
			assert.NoError(s.t, servers.AwaitTakeover(queueKey, primary))
			assert.NoError(s.t, primary.Thaw())
		})},
	}
}
