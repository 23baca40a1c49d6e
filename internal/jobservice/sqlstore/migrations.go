package sqlstore

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strconv"
	"strings"
)

//go:embed migrations
var migrationFiles embed.FS

// migration is one step of the schema. A step that was released never changes.
type migration struct {
	version int
	sql     string
}

// migrations of a kind of database, in their order: migrations/<kind>/<version>_<name>.sql.
func migrations(kind string) ([]migration, error) {
	folder := path.Join("migrations", kind)
	entries, err := fs.ReadDir(migrationFiles, folder)
	if err != nil {
		return nil, err
	}
	var found []migration
	for _, entry := range entries {
		number, _, _ := strings.Cut(entry.Name(), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("the migration %s has no version: %w", entry.Name(), err)
		}
		text, err := fs.ReadFile(migrationFiles, path.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		found = append(found, migration{version: version, sql: string(text)})
	}
	sort.Slice(found, func(i, j int) bool { return found[i].version < found[j].version })
	return found, nil
}

// pending are the migrations after a version. A schema that is newer than this program is refused: it would write rows that the newer
// program does not expect.
func pending(kind string, at int) ([]migration, error) {
	all, err := migrations(kind)
	if err != nil {
		return nil, err
	}
	if newest := all[len(all)-1].version; at > newest {
		return nil, fmt.Errorf("the schema of the database has version %d, this program knows those up to %d: run the newer program", at, newest)
	}
	for len(all) > 0 && all[0].version <= at {
		all = all[1:]
	}
	return all, nil
}
