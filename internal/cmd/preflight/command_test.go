package preflight

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSettings(t *testing.T) {
	right := map[string]string{
		"PREFLIGHT_ID": "uid", "PREFLIGHT_PEERS": "a-0.a,a-1.a", "REPLICA_INDEX": "1", "MASTER_PORT": "29500", "AGENT_PORT": "9464",
	}
	s, err := fromEnvironment(func(name string) string { return right[name] })
	require.NoError(t, err)
	assert.Equal(t, "uid", s.ID)
	assert.Equal(t, []string{"a-0.a", "a-1.a"}, s.Peers)
	assert.Equal(t, 1, s.Replica)
	assert.Equal(t, 29500, s.Port)
	assert.Equal(t, 9464, s.ReportPort)
	for _, test := range []struct{ name, value, want string }{
		{"PREFLIGHT_ID", "", "PREFLIGHT_ID: is not set"},
		{"PREFLIGHT_PEERS", "", `REPLICA_INDEX: "1" is no number from 0 to -1`},
		{"REPLICA_INDEX", "2", `REPLICA_INDEX: "2" is no number from 0 to 1`},
		{"MASTER_PORT", "x", `MASTER_PORT: "x" is no number from 1 to 65535`},
		{"AGENT_PORT", "0", `AGENT_PORT: "0" is no number from 1 to 65535`},
	} {
		wrong := maps.Clone(right)
		wrong[test.name] = test.value
		_, err := fromEnvironment(func(name string) string { return wrong[name] })
		assert.ErrorContains(t, err, test.want, test.name)
	}
}
