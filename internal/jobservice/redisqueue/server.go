package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	// epochKey says which epoch the data have. The hash tag of all keys puts them on one server of a Redis Cluster.
	epochKey    = "{jobs}:epoch"
	wakeChannel = "{jobs}:wake"
	// leastVersion of Redis that takes over from another: those before it pass scripts on to their replicas, so that one that lacks
	// data would not be found out.
	leastVersion = 7
)

// keys of each script: the one by which a Redis Cluster finds whose it is.
var keys = []string{epochKey}

// limits of all connections, as parameters of the URL. A script whose answer was lost may have been run: who called decides what then.
var limits = map[string]string{
	"max_retries": "-1", "dial_timeout": "1s", "read_timeout": "2s", "write_timeout": "2s", "pool_timeout": "2s", "pool_size": "32",
}

// noNotices has servers not asked for notices of their upkeep, which few of them know.
var noNotices = maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// server is where the queue is kept.
type server struct {
	client redis.UniversalClient
	// cluster is the client of a Redis Cluster, else nil.
	cluster *redis.ClusterClient
	// replicated servers may be replaced by a replica.
	replicated bool
	embedded   *miniredis.Miniredis
}

// Open opens a Redis by a URL. It need not answer yet. Forms, each also with rediss for TLS, and with what go-redis reads in URLs:
//
//	redis://:password@host:6379/0
//	redis+sentinel://:sentinel-password@host:26379/0?master_name=jobs&password=password&addr=other-host:26379
//	redis+cluster://:password@host:6379?addr=other-host:6379
func Open(address string) (*Queue, error) {
	s, err := open(address)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	return &Queue{server: s}, nil
}

func open(text string) (server, error) {
	address, err := url.Parse(text)
	if err != nil {
		// The error has the URL, and so the password.
		return server{}, errors.New("it is none: write other characters than letters and digits of a password as %XX")
	}
	query := address.Query()
	for name, value := range limits {
		query.Set(name, value)
	}
	address.RawQuery = query.Encode()
	plain, form, _ := strings.Cut(address.Scheme, "+")
	address.Scheme = plain
	switch form {
	case "":
		return openSingle(address.String())
	case "sentinel":
		return openSentinel(address.String())
	case "cluster":
		return openCluster(address.String())
	}
	return server{}, fmt.Errorf("%q is not known: use %s, %s+sentinel or %s+cluster", plain+"+"+form, plain, plain, plain)
}

func openSingle(address string) (server, error) {
	options, err := redis.ParseURL(address)
	if err != nil {
		return server{}, err
	}
	options.ContextTimeoutEnabled, options.MaintNotificationsConfig = true, &noNotices
	return server{client: redis.NewClient(options)}, nil
}

func openSentinel(address string) (server, error) {
	options, err := redis.ParseFailoverURL(address)
	if err != nil {
		return server{}, err
	}
	if options.MasterName == "" {
		return server{}, errors.New("it does not say which primary Sentinel is asked for: add ?master_name=")
	}
	options.ContextTimeoutEnabled = true
	return server{client: redis.NewFailoverClient(options), replicated: true}, nil
}

func openCluster(address string) (server, error) {
	options, err := redis.ParseClusterURL(address)
	if err != nil {
		return server{}, err
	}
	options.ContextTimeoutEnabled, options.MaintNotificationsConfig = true, &noNotices
	client := redis.NewClusterClient(options)
	return server{client: client, cluster: client, replicated: true}, nil
}

// OpenEmbedded opens a Redis within this process, which keeps nothing.
func OpenEmbedded() (*Queue, error) {
	embedded := miniredis.NewMiniRedis()
	if err := embedded.Start(); err != nil {
		return nil, err
	}
	q, err := Open("redis://" + embedded.Addr())
	if err != nil {
		embedded.Close()
		return nil, err
	}
	q.embedded = embedded
	return q, nil
}

// Close closes the connections.
func (s *server) Close() {
	_ = s.client.Close()
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// Ping says why Redis cannot be used.
func (s *server) Ping(ctx context.Context) error {
	primary, err := s.primary(ctx)
	if err == nil {
		err = unavailable(primary.Ping(ctx).Err())
	}
	if err != nil && s.cluster != nil {
		s.cluster.ReloadState(ctx) // another node may have the keys by now
	}
	return err
}

// primary is the server that has the keys. That of a cluster is asked itself, so that scripts are loaded where they are run, and so that none
// is run twice: the client of a cluster tries again whatever its options say.
func (s *server) primary(ctx context.Context) (redis.Cmdable, error) {
	if s.cluster == nil {
		return s.client, nil
	}
	primary, err := s.cluster.MasterForKey(ctx, epochKey)
	if err != nil {
		return nil, unavailable(err)
	}
	return primary, nil
}

// life names one run of the server.
func (s *server) life(ctx context.Context) (string, error) {
	if s.embedded != nil {
		return "embedded", nil
	}
	primary, err := s.primary(ctx)
	if err != nil {
		return "", err
	}
	info := primary.InfoMap(ctx, "server")
	if err := info.Err(); err != nil {
		return "", unavailable(err)
	}
	version := info.Item("Server", "redis_version")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); s.replicated && (err != nil || n < leastVersion) {
		return "", fmt.Errorf("redis has version %s: with Sentinel and in a cluster, use version %d or newer", version, leastVersion)
	}
	id := info.Item("Server", "run_id")
	if id == "" {
		return "", errors.New("redis names no run_id")
	}
	return id, nil
}

// unavailable marks errors that are no answer of Redis, and those that say that it cannot serve.
func unavailable(err error) error {
	if err == nil {
		return nil
	}
	var network net.Error
	var answer redis.Error
	if errors.As(err, &network) || !errors.As(err, &answer) {
		return fmt.Errorf("redis: %w: %w", jobs.ErrUnavailable, err)
	}
	for _, prefix := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "OOM", "MISCONF", "BUSY", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN", "MOVED", "ASK",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return fmt.Errorf("redis: %w: %w", jobs.ErrUnavailable, err)
		}
	}
	return fmt.Errorf("redis: %w", err)
}
