// Package process starts background processes, remembers which they are, and stops exactly those.
//
// A process id alone says little: it may belong to another process by the time it is used. Every
// process is therefore identified by its id, the time it was started and the boot it was started in.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// procRoot is where the kernel shows processes; tests replace it.
var procRoot = "/proc"

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
	stat, err := os.ReadFile(filepath.Join(procRoot, strconv.Itoa(pid), "stat"))
	if err != nil {
		return Identity{}, fmt.Errorf("read state of process %d: %w", pid, ErrGone)
	}
	state, ticks, err := parseStat(stat)
	if err != nil {
		return Identity{}, fmt.Errorf("process %d: %w", pid, err)
	}
	if state == "Z" || state == "X" {
		return Identity{}, fmt.Errorf("process %d has ended: %w", pid, ErrGone)
	}
	boot, err := os.ReadFile(filepath.Join(procRoot, "sys/kernel/random/boot_id"))
	if err != nil {
		return Identity{}, fmt.Errorf("read boot id: %w", err)
	}
	return Identity{PID: pid, StartTicks: ticks, BootID: strings.TrimSpace(string(boot))}, nil
}

// Alive reports whether this very process, not another with the same id, is still running.
func (i Identity) Alive() bool {
	now, err := Identify(i.PID)
	return err == nil && now == i
}

// parseStat takes the state letter and the start time out of the content of /proc/PID/stat. The
// second field is the program's name in parentheses and may itself hold spaces and parentheses, so
// fields are counted from the last closing one.
func parseStat(stat []byte) (state string, startTicks uint64, err error) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", 0, errors.New("stat has no program name")
	}
	fields := strings.Fields(string(stat[end+1:]))
	const stateField, startField = 0, 19 // fields 3 and 22 of the whole line
	if len(fields) <= startField {
		return "", 0, fmt.Errorf("stat has %d fields after the program name, want more than %d", len(fields), startField)
	}
	startTicks, err = strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return "", 0, fmt.Errorf("start time in stat: %w", err)
	}
	return fields[stateField], startTicks, nil
}
