package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Spec says what to start.
type Spec struct {
	// Name is the name to record the process under.
	Name string
	// Program is the executable: its path, or a name on the PATH.
	Program string
	// Args are the arguments after argv[0].
	Args []string
	// Env is added to (and overrides) the environment of this process.
	Env []string
	// Log is the file for standard output and error; an older one is kept as Log + ".old".
	Log string `json:"-"`
	// Owner is the value of MarkVariable.
	Owner string `json:"-"`
	// CloneFlags ask for new namespaces of the process's own.
	CloneFlags uintptr `json:"-"`
}

// Start starts the process apart from this one, so that it outlives it and does not get the
// terminal's signals, and records it in table.
func Start(spec Spec, table Table) (Record, error) {
	if err := os.MkdirAll(filepath.Dir(spec.Log), 0o755); err != nil {
		return Record{}, err
	}
	// The reason of an earlier failure stays there to read.
	if err := os.Rename(spec.Log, spec.Log+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Record{}, err
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return Record{}, fmt.Errorf("open log of %s: %w", spec.Name, err)
	}
	defer log.Close()

	cmd := exec.Command(spec.Program, spec.Args...)
	cmd.Env = append(append(os.Environ(), spec.Env...), MarkVariable+"="+spec.Owner)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = filepath.Dir(spec.Log)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: spec.CloneFlags}
	if err := cmd.Start(); err != nil {
		return Record{}, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	// Collect the process if it ends while we still run, else it would look alive as a zombie.
	go func() { _ = cmd.Wait() }()

	id, err := Identify(cmd.Process.Pid)
	if err != nil {
		return Record{}, fmt.Errorf("%s ended at once (log: %s): %w", spec.Name, spec.Log, err)
	}
	record := Record{
		Name: spec.Name, Identity: id, Command: cmd.Args, Log: spec.Log, Started: time.Now().UTC().Truncate(time.Second),
	}
	if err := table.Save(record); err != nil {
		return Record{}, fmt.Errorf("record %s: %w", spec.Name, err)
	}
	return record, nil
}
