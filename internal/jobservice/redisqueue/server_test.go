package redisqueue

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheSchemeSaysWhatKindOfRedisItIs(t *testing.T) {
	for address, replicated := range map[string]bool{
		"redis://:password@redis:6379/0":                                      false,
		"rediss://user:password@redis:6379":                                   false,
		"redis+sentinel://sentinel:26379/0?master_name=jobs&addr=other:26379": true,
		"rediss+sentinel://sentinel:26379?master_name=jobs&password=password": true,
		"redis+cluster://:password@redis-0:6379?addr=redis-1:6379":            true,
		"rediss+cluster://redis:6379":                                         true,
	} {
		q, err := Open(address) // none of them needs to answer
		require.NoError(t, err, address)
		assert.Equal(t, replicated, q.replicated, address)
		q.Close()
	}
}

func TestAWrongURLOfRedisIsExplained(t *testing.T) {
	for address, want := range map[string]string{
		"redis+ring://redis:6379":         `"redis+ring" is not known: use redis, redis+sentinel or redis+cluster`,
		"redis+sentinel://sentinel:26379": "add ?master_name=",
		"redis+cluster://redis?addr=x":    "addr",
		"http://redis":                    "http",
		"redis://:se%cret@redis:6379":     "write other characters than letters and digits of a password as %XX",
	} {
		_, err := Open(address)
		require.ErrorContains(t, err, want, address)
		assert.NotContains(t, err.Error(), "cret")
	}
}
