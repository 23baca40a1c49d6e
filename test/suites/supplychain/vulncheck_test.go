package supplychain_test

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What govulncheck prints here: with -version, only if the database answers, when it was last changed.
const govulncheck = `#!/bin/sh
case "$*" in
-version) %s ;;
*) echo "scanned with $*"; cat "${2#file://}/index/db.json" 2>/dev/null || true ;;
esac
`

func TestVulnerabilitiesAreLookedForOrTheCheckSaysThatTheyAreNot(t *testing.T) {
	const online, offline = "echo 'DB updated: 2026-01-01'", "echo 'Go: go1.26'"
	today, old := time.Now(), time.Now().AddDate(0, 0, -40)
	for name, test := range map[string]struct {
		database    string
		copied      *time.Time
		want, never []string
	}{
		"the database answers": {online, &old, []string{"scanned with ./..."}, []string{"WARNING"}},
		"a new copy":           {offline, &today, []string{"scanned with -db file://", today.UTC().Format("2006-01-02")}, []string{"WARNING"}},
		"an old copy":          {offline, &old, []string{"scanned with -db file://", "WARNING: govulncheck runs with a database of", "40 days ago"}, nil},
		"no copy":              {offline, nil, []string{"WARNING: govulncheck WAS NOT RUN", "WARNING: Fetch one: git fetch"}, []string{"scanned"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "govulncheck"), fmt.Appendf(nil, govulncheck, test.database), 0o755))
			archive := filepath.Join(folder, "vulndb.tar.gz")
			if test.copied != nil {
				writeDatabase(t, archive, *test.copied)
			}
			command := exec.CommandContext(t.Context(), "hack/vulncheck-if-reachable.sh")
			command.Dir = root
			command.Env = append(os.Environ(), "BIN="+folder, "VULNDB_COPY="+archive, "LOCALCLUSTER_BIN="+folder, "GITHUB_ACTIONS=", "MAKEFLAGS=")
			output, err := command.CombinedOutput()
			require.NoError(t, err, "%s", output)
			for _, text := range test.want {
				assert.Contains(t, string(output), text)
			}
			for _, text := range test.never {
				assert.NotContains(t, string(output), text)
			}
		})
	}
}

// writeDatabase writes what the script reads of a database, in the form of the branch vulndb.
func writeDatabase(t *testing.T, path string, modified time.Time) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	text := fmt.Sprintf(`{"modified":%q}`, modified.UTC().Format(time.RFC3339))
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "./index/db.json", Mode: 0o644, Size: int64(len(text))}))
	_, err = archive.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	require.NoError(t, file.Close())
}
