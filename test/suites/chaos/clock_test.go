package chaos

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// clockVariable names the file from which a manager that was built here takes by how much its clock is wrong.
const clockVariable = "CHAOS_CLOCK_FILE"

// wrongClock is added to package time. The file is mapped, so that the clock of a program that runs jumps too.
const wrongClock = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var wrongBy = mapWrongBy()

func mapWrongBy() *int64 {
	name, _ := syscall.Getenv("` + clockVariable + `")
	file, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return new(int64)
	}
	content, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&content[0]))
}

func wrongNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	if wrongBy != nil {
		sec += atomic.LoadInt64(wrongBy)
	}
	return sec, nsec, mono
}
`

// programWithClock builds the operator's program with a package time whose clock can be set, as if someone set that of its machine: only the
// time of day jumps, and what is measured by the monotonic clock goes on. Nothing of the program is made for that: the go command takes another
// file in place of one of the standard library. All packages are compiled again, which takes minutes the first time.
var programWithClock = sync.OnceValues(func() (string, error) {
	folder := filepath.Join(apiserver.Root(), ".localcluster", "test", "clock")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	library := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", err
	}
	const right, wrong = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := wrongNow()\n"
	if strings.Count(string(text), right) != 1 {
		return "", os.ErrInvalid // another version of Go: look how Now begins there
	}
	files := map[string]string{
		"time.go": strings.Replace(string(text), right, wrong, 1), "wrong_clock.go": wrongClock,
	}
	replace := map[string]string{}
	for name, content := range files {
		path := filepath.Join(folder, name+".txt") // so that no tool takes it for a package of this module
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(library, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list, program := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "spot-training-operator")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	command := exec.Command("go", "build", "-C", apiserver.Root(), "-buildvcs=false", "-overlay", list, "-o", program, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return program, command.Run()
})

// wantsClock says whether the clock of the manager jumps.
func wantsClock() bool { return os.Getenv("CHAOS_CLOCK") == "jumps" }

// clock is by how much that of a manager is wrong.
type clock struct{ file string }

func newClock(t *testing.T, folder string) *clock {
	t.Helper()
	c := &clock{filepath.Join(folder, "clock")}
	require.NoError(t, os.WriteFile(c.file, make([]byte, 8), 0o600))
	return c
}

// jump sets it.
func (c *clock) jump(by time.Duration) error {
	file, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(by.Seconds()))), 0)
	return err
}
