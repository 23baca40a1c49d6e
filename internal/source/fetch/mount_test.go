package fetch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// The test runs again in a namespace of its own, where it may mount a small volume.
func TestAVolumeThatIsFullIsTold(t *testing.T) {
	t.Parallel()
	const inside = "FETCH_TEST_MOUNT"
	mount := os.Getenv(inside)
	if mount == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), inside+"="+t.TempDir())
		again.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		output, err := again.CombinedOutput()
		if os.IsPermission(err) || strings.Contains(string(output), "no mounts here") {
			t.Skip("this machine lets the test make no namespace with mounts")
		}
		require.NoError(t, err, "%s", output)
		return
	}
	if unix.Mount("tmpfs", mount, "tmpfs", 0, "size=256k") != nil {
		t.Fatal("no mounts here")
	}
	fetched := func(keys map[string]string) *fetching {
		f := &fetching{Settings: Settings{Source: configMap("code"), Files: mounted(t, keys), Directory: filepath.Join(mount, "above", "source")}}
		f.status, f.err = Run(t.Context(), f.Settings)
		return f
	}
	files := map[string]string{"train.py": "print()\n", "config.yaml": "a: 1\n"}
	fetched(files).has(t, files)
	info, err := os.Stat(filepath.Join(mount, "above"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o777), info.Mode().Perm(), "the program may write there as any user")
	fetched(map[string]string{"large.bin": strings.Repeat("x", 1<<20)}).fails(t, reasons.SourceVolumeFull, "spec.source: there is no space left on the node for the code")
	assert.NoDirExists(t, filepath.Join(mount, "above", working))
}
