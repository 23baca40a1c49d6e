package sqlstore_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/sqlstore"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
)

// What was delivered in an epoch that is over was not delivered.
func TestRowsOfTheOutboxGoInTheirEpochOnly(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (sqlstore.Database, error){
		"SQLite": func(t *testing.T) (sqlstore.Database, error) { return sqlstore.OpenSQLite(t.Context(), t.TempDir()) },
		"PostgreSQL": func(t *testing.T) (sqlstore.Database, error) {
			return sqlstore.OpenPostgres(t.Context(), postgres.Start(t).URL, sqlstore.Replica{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			db, err := open(t)
			require.NoError(t, err)
			defer db.Close()
			require.NoError(t, db.SetEpoch(ctx, "new"))
			var boxes []string
			for range 3 {
				boxes = append(boxes, uuid.NewString())
				require.NoError(t, db.Insert(ctx, nil, sqlstore.Outbox{ID: boxes[len(boxes)-1], Jobs: []string{uuid.NewString()}}, sqlstore.Delivered{}))
			}
			left := func() int {
				rows, err := db.Undelivered(ctx, time.Now().Add(time.Minute), 10)
				require.NoError(t, err)
				return len(rows)
			}
			unchanged := func(map[string]*sqlstore.Row) ([]*sqlstore.Row, sqlstore.Outbox) { return nil, sqlstore.Outbox{} }
			for _, try := range []struct {
				epoch string
				left  [3]int
			}{{"old", [3]int{3, 3, 3}}, {"new", [3]int{2, 1, 0}}} {
				of := func(i int) sqlstore.Delivered { return sqlstore.Delivered{Epoch: try.epoch, IDs: boxes[i : i+1]} }
				n, err := db.Deliver(ctx, of(0))
				require.NoError(t, err)
				require.Equal(t, 3-try.left[0], n)
				require.Equal(t, try.left[0], left())
				require.NoError(t, db.Insert(ctx, nil, sqlstore.Outbox{}, of(1)))
				require.Equal(t, try.left[1], left())
				require.NoError(t, db.Change(ctx, sqlstore.Change{Delivered: of(2), Decide: unchanged}))
				require.Equal(t, try.left[2], left())
			}
		})
	}
}
