package rbac_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a child process, which ends with its test at the latest.
type process struct {
	t     *testing.T
	name  string
	log   string
	pid   int
	ended chan error
}

func startProcess(t *testing.T, folder, name, program string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, log: filepath.Join(folder, name+".log"), ended: make(chan error, 1)}
	log, err := os.Create(p.log)
	require.NoError(t, err)
	defer log.Close()
	command := exec.Command(program, args...)
	command.Env = append(os.Environ(), env...)
	command.Dir = folder
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, command.Start())
	p.pid = command.Process.Pid
	go func() {
		p.ended <- command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.stop() // how it ends is of interest to those who end it earlier
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, p.tail(25))
		}
	})
	return p
}

// stop ends the process, by force when it does not end by itself, and returns how it ended.
func (p *process) stop() error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case err := <-p.ended:
			return err
		default:
		}
		if err := syscall.Kill(p.pid, signal); err != nil {
			return fmt.Errorf("stop %s: %w", p.name, err)
		}
		select {
		case err := <-p.ended:
			return err
		case <-time.After(45 * time.Second):
		}
	}
	return fmt.Errorf("%s does not end", p.name)
}

func (p *process) tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
