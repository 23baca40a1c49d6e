package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Steps of the schema, as migrations/<kind>/<version>_<name>.sql. One that was released never changes.
//
//go:embed migrations
var migrationFiles embed.FS

// open is the condition for jobs that have not ended.
const open = "status IN ('queued', 'scheduled', 'running', 'retrying')"

// openIndex is for the jobs of a submitter that have not ended. An index changes no row, so it is no step: a version of the schema would keep the
// program before from being run again.
const openIndex = "CREATE INDEX IF NOT EXISTS jobs_open ON jobs (submitter) WHERE " + open

// migrate brings the schema up to date. One that is newer than this program is refused: it would write rows that the newer program does not
// expect.
func (d *database) migrate(ctx context.Context) error {
	files, err := fs.Glob(migrationFiles, "migrations/"+d.kind+"/*.sql") // in the order of their versions
	if err != nil {
		return err
	}
	return d.transaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, d.beginMigration); err != nil {
			return err
		}
		var at, version int
		if err := tx.QueryRowContext(ctx, d.readVersion).Scan(&at); err != nil {
			return err
		}
		for _, file := range files {
			number, _, _ := strings.Cut(file[strings.LastIndex(file, "/")+1:], "_")
			if version, err = strconv.Atoi(number); err != nil {
				return fmt.Errorf("the migration %s has no version: %w", file, err)
			}
			if version <= at {
				continue
			}
			text, err := fs.ReadFile(migrationFiles, file)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return fmt.Errorf("migration %d: %w", version, err)
			}
			if _, err := tx.ExecContext(ctx, fmt.Sprintf(d.writeVersion, version)); err != nil {
				return err
			}
		}
		if at > version {
			return fmt.Errorf("the schema of the database has version %d, this program knows those up to %d: run the newer program", at, version)
		}
		_, err := tx.ExecContext(ctx, d.makeIndex)
		return err
	})
}
