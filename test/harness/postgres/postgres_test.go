package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
)

func TestWhatIsCommittedOutlivesAKill(t *testing.T) {
	server := postgres.Start(t)
	connect := func() *pgx.Conn {
		connection, err := pgx.Connect(t.Context(), server.URL)
		require.NoError(t, err)
		return connection
	}
	c := connect()
	_, err := c.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer")
	require.NoError(t, err)
	server.Kill()
	require.Error(t, c.Ping(t.Context()))
	server.Start()

	c = connect()
	defer func() { _ = c.Close(t.Context()) }()
	var answer int
	require.NoError(t, c.QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer))
	require.Equal(t, 42, answer)
}
