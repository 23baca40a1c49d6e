// Package process starts background processes, remembers which they are, and stops exactly those.
//
// A process id alone says little: it may belong to another process by the time it is used. Every
// process is therefore identified by its id, the time it was started and the boot it was started in.
package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/procfs"
)

// ErrGone says that no such process exists (any more).
var ErrGone = errors.New("process is gone")

// Identity names one process for as long as the machine runs and after.
type Identity struct {
	// PID is the process id.
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot (field 22 of /proc/PID/stat).
	StartTicks uint64 `json:"startTicks"`
	// BootID is the kernel's id of the boot in which the process was started.
	BootID string `json:"bootID"`
}

// Identify returns the identity of the running process pid, or ErrGone. A zombie counts as gone:
// it has ended and only waits to be collected by its parent.
func Identify(pid int) (Identity, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("find process %d: %w", pid, ErrGone)
	}
	stat, err := process.Stat()
	if err != nil {
		return Identity{}, fmt.Errorf("read state of process %d: %w", pid, ErrGone)
	}
	if stat.State == "Z" || stat.State == "X" {
		return Identity{}, fmt.Errorf("process %d has ended: %w", pid, ErrGone)
	}
	boot, err := os.ReadFile(filepath.Join(procfs.DefaultMountPoint, "sys/kernel/random/boot_id"))
	if err != nil {
		return Identity{}, fmt.Errorf("read boot id: %w", err)
	}
	return Identity{PID: pid, StartTicks: stat.Starttime, BootID: strings.TrimSpace(string(boot))}, nil
}

// Alive reports whether this very process, not another with the same id, is still running.
func (i Identity) Alive() bool {
	now, err := Identify(i.PID)
	return err == nil && now == i
}
