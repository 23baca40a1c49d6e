package sqlstore

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// In a pod whose root file system is read-only there is no folder for temporary files, and a statement that needs one fails.
func TestSQLiteKeepsWhatIsTemporaryInMemory(t *testing.T) {
	database, err := OpenSQLite(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(database.Close)
	const inMemory = 2 // https://www.sqlite.org/pragma.html#pragma_temp_store
	s := database.(*sqlite)
	for _, row := range []interface{ Scan(...any) error }{s.write.QueryRow("PRAGMA temp_store"), s.read.QueryRow("PRAGMA temp_store")} {
		var where int
		require.NoError(t, row.Scan(&where))
		assert.Equal(t, inMemory, where)
	}
}

func TestNoQueuesHaveNoOldestJobs(t *testing.T) {
	database, err := OpenSQLite(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(database.Close)
	oldest, err := database.Oldest(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, oldest)
}

// A disk that is busy must not fail what can be tried again.
func TestATransactionWhoseTimeIsOverCanBeTriedAgain(t *testing.T) {
	database, err := OpenSQLite(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(database.Close)
	ctx, cancel := context.WithCancel(t.Context())
	err = database.(*sqlite).transaction(ctx, func(tx *sql.Tx) error {
		cancel()
		for {
			if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err != nil {
				return err
			}
		}
	})
	require.ErrorIs(t, err, sql.ErrTxDone)
	assert.ErrorIs(t, err, jobs.ErrUnavailable)
}
