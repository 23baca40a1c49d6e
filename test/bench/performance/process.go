package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is the unit of times in /proc (USER_HZ).
const clockTick = 10 * time.Millisecond

// process is a child process.
type process struct {
	name  string
	log   string
	pid   int
	ended chan struct{}
}

// startProcess starts a program with its output in a log file. It is in a process group of its own, so that Ctrl-C
// reaches it only by way of stop.
func startProcess(folder, name, program string, env []string, arguments ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(folder, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), env...)
	command.Dir = folder
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.pid = command.Process.Pid
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process, by force when it does not end by itself.
func (p *process) stop() {
	if p == nil {
		return
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if p.alive() != nil {
			return
		}
		_ = syscall.Kill(p.pid, signal)
		select {
		case <-p.ended:
			return
		case <-time.After(15 * time.Second):
		}
	}
}

// alive returns an error with the end of the log when the process has ended.
func (p *process) alive() error {
	select {
	case <-p.ended:
		text, _ := os.ReadFile(p.log)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%s ended:\n%s", p.name, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	default:
		return nil
	}
}

// cpu is the processor time, of user and system together, that the process has used.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name, which may hold anything; utime and stime are fields 14 and 15.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has another form than expected", p.pid)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(errUser, errSystem)
}

// processorTimes is the processor time that this program and each of its child processes has used, by name.
func processorTimes() map[string]time.Duration {
	used := map[string]time.Duration{}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		text, err := os.ReadFile(filepath.Join(folder, "stat"))
		if err != nil {
			continue // it has ended
		}
		name := string(text[bytes.IndexByte(text, '(')+1 : bytes.LastIndexByte(text, ')')])
		parent := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[1]
		if pid != os.Getpid() && parent != strconv.Itoa(os.Getpid()) {
			continue
		}
		if time, err := (&process{pid: pid}).cpu(); err == nil {
			used[name] += time
		}
	}
	return used
}

// peakMemory is the most memory that was resident at any time, in bytes.
func (p *process) peakMemory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", p.pid)
}

// await asks several times a second until the answer is yes, the time is over, or one of the processes has ended.
func await(ctx context.Context, what string, limit time.Duration, needed []*process, met func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		ok, err := met()
		if ok {
			return nil
		}
		for _, p := range needed {
			if err := p.alive(); err != nil {
				return fmt.Errorf("wait until %s: %w", what, err)
			}
		}
		if time.Now().After(deadline) {
			return errors.Join(fmt.Errorf("waited %s without success until %s", limit, what), err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
