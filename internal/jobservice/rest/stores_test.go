package rest_test

import (
	"testing"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/test/harness/jobstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

// stores that the contract holds with: those that the service runs with, and the one in which other tests set errors, so that it is
// known to be like them.
func stores() map[string]func(*testing.T) jobs.Store {
	return map[string]func(*testing.T) jobs.Store{
		"memory": func(*testing.T) jobs.Store { return newMemory() },
		"SQLite": func(t *testing.T) jobs.Store { return open(t, engine.Options{DataDir: t.TempDir()}) },
		"PostgreSQL and Redis": func(t *testing.T) jobs.Store {
			return open(t, engine.Options{DatabaseURL: postgres.Start(t).URL, RedisURL: redis.Start(t).URL})
		},
	}
}

func open(t *testing.T, options engine.Options) jobs.Store {
	t.Helper()
	options.Visibility, options.RetryDelay = time.Minute, time.Hour
	return jobstore.Open(t, options)
}
