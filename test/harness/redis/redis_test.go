package redis_test

import (
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

func TestDataOutlivesAKillOnlyWithTheAppendOnlyFile(t *testing.T) {
	for name, test := range map[string]struct {
		options []redis.Option
		forget  bool
		kept    bool
	}{
		"in memory":              {},
		"append only":            {options: []redis.Option{redis.AppendOnly}, kept: true},
		"append only, forgotten": {options: []redis.Option{redis.AppendOnly}, forget: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := redis.Start(t, test.options...)
			c := client.NewClient(&client.Options{Addr: server.Address})
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.Set(t.Context(), "key", "value", time.Hour).Err())
			server.Kill()
			require.Error(t, c.Ping(t.Context()).Err())
			if test.forget {
				require.NoError(t, server.Forget())
			}
			server.Start()
			value, err := c.Get(t.Context(), "key").Result()
			if test.kept {
				require.NoError(t, err)
				require.Equal(t, "value", value)
			} else {
				require.ErrorIs(t, err, client.Nil)
			}
		})
	}
}
