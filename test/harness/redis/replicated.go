package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

const (
	// primaryName is what Sentinel calls the primary.
	primaryName = "jobs"
	// takeover is after how many milliseconds without an answer a replica takes the place of its primary.
	takeover = "1500"
	// patience bounds every wait.
	patience = time.Minute
)

// Replicated are servers with replicas, which take the place of a primary that does not answer.
type Replicated struct {
	// URL is what clients are told.
	URL string
	// Servers of the data, by address.
	Servers map[string]*Server

	// primary returns the address of the server that has a key.
	primary func(ctx context.Context, key string) (string, error)
}

// Primary returns the server that has a key now.
func (r *Replicated) Primary(key string) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	address, err := r.primary(ctx, key)
	if err != nil {
		return nil, err
	}
	s := r.Servers[address]
	if s == nil {
		return nil, fmt.Errorf("no server of the test has the address %q", address)
	}
	return s, nil
}

// AwaitTakeover waits until another server than one has the key.
func (r *Replicated) AwaitTakeover(key string, from *Server) error {
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		now, err := r.Primary(key)
		if err == nil && now != from {
			return nil
		}
		last = err
	}
	return fmt.Errorf("no replica takes the place of %s within %s: %w", from.Address, patience, last)
}

// StartSentinel starts a primary, a replica of it and three Sentinels.
func StartSentinel(t testing.TB) *Replicated {
	t.Helper()
	one := Start(t)
	host, port, err := net.SplitHostPort(one.Address)
	require.NoError(t, err)
	other := Start(t, func(arguments *[]string) { *arguments = append(*arguments, "--replicaof", host+" "+port) })
	r := &Replicated{Servers: map[string]*Server{one.Address: one, other.Address: other}}
	var sentinels []string
	for range 3 {
		folder := t.TempDir()
		// A Sentinel writes to its file what it learns.
		file := filepath.Join(folder, "sentinel.conf")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "dir %s\nsentinel monitor %s %s %s 2\nsentinel down-after-milliseconds %s %s\n"+
			"sentinel failover-timeout %s 5000\n", folder, primaryName, host, port, primaryName, takeover, primaryName), 0o600))
		address := process.FreePort(t, process.AnyPort)
		start(t, folder, address, file, "--sentinel")
		sentinels = append(sentinels, address)
	}
	r.URL = "redis+sentinel://" + sentinels[0] + "/0?master_name=" + primaryName + "&addr=" + strings.Join(sentinels[1:], "&addr=")
	var clients []*client.SentinelClient
	for _, address := range sentinels {
		c := client.NewSentinelClient(&client.Options{Addr: address, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	r.primary = func(ctx context.Context, _ string) (string, error) {
		address, err := clients[0].GetMasterAddrByName(ctx, primaryName).Result()
		if err != nil {
			return "", err
		}
		return net.JoinHostPort(address[0], address[1]), nil
	}
	for _, c := range clients {
		require.Eventually(t, func() bool {
			known, err := c.Master(t.Context(), primaryName).Result()
			return err == nil && known["num-slaves"] == "1" && known["num-other-sentinels"] == "2"
		}, patience, 20*time.Millisecond, "the Sentinels do not find one another and the replica")
	}
	return r
}

// slots of a Redis Cluster.
const slots = 16384

// StartCluster starts a Redis Cluster of three primaries with a replica each.
func StartCluster(t testing.TB) *Replicated {
	t.Helper()
	const primaries = 3
	r := &Replicated{Servers: map[string]*Server{}}
	var clients []*client.Client
	var addresses, ids []string
	for i := range 2 * primaries {
		_, bus, err := net.SplitHostPort(process.FreePort(t, process.AnyPort))
		require.NoError(t, err)
		s := Start(t, func(arguments *[]string) {
			*arguments = append(*arguments, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", takeover,
				"--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no")
		})
		c := client.NewClient(&client.Options{Addr: s.Address, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		r.Servers[s.Address] = s
		addresses, clients = append(addresses, s.Address), append(clients, c)
		if i < primaries {
			require.NoError(t, c.ClusterAddSlotsRange(t.Context(), i*slots/primaries, (i+1)*slots/primaries-1).Err())
		}
		require.NoError(t, c.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)).Err())
		host, port, err := net.SplitHostPort(s.Address)
		require.NoError(t, err)
		if i > 0 {
			require.NoError(t, clients[0].Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err())
		}
		id, err := c.Do(t.Context(), "CLUSTER", "MYID").Text()
		require.NoError(t, err)
		ids = append(ids, id)
	}
	for i, c := range clients[primaries:] {
		require.Eventually(t, func() bool { return c.ClusterReplicate(t.Context(), ids[i]).Err() == nil }, patience, 20*time.Millisecond,
			"the nodes do not find one another")
	}
	for _, c := range clients {
		require.Eventually(t, func() bool {
			info, err := c.ClusterInfo(t.Context()).Result()
			nodes, failed := c.ClusterNodes(t.Context()).Result()
			return errors.Join(err, failed) == nil && strings.Contains(info, "cluster_state:ok") && strings.Count(nodes, "slave") == primaries
		}, patience, 20*time.Millisecond, "the cluster does not come up")
	}
	r.URL = "redis+cluster://" + addresses[0] + "?addr=" + strings.Join(addresses[1:], "&addr=")
	all := client.NewClusterClient(&client.ClusterOptions{Addrs: addresses})
	t.Cleanup(func() { _ = all.Close() })
	r.primary = func(ctx context.Context, key string) (string, error) {
		all.ReloadState(ctx)
		primary, err := all.MasterForKey(ctx, key)
		if err != nil {
			return "", err
		}
		return primary.Options().Addr, primary.Ping(ctx).Err()
	}
	return r
}
