package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// service is a process that is kept running once it is started.
type service struct {
	name    string
	command []string
	// prepare runs before each start; may be nil.
	prepare func() error

	mutex   sync.Mutex
	cancel  context.CancelFunc // nil while the service is stopped
	done    chan struct{}
	running atomic.Bool
}

const (
	// restartAfter is the pause before a service that has ended is started again.
	restartAfter = time.Second
	// stopGrace is how long a service may take to end before it is killed.
	stopGrace = 10 * time.Second
)

func (s *service) start() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := s.run(ctx); err != nil {
				fmt.Printf("%s: %v\n", s.name, err)
			}
		}, restartAfter)
	}()
}

func (s *service) run(ctx context.Context) error {
	if s.prepare != nil {
		if err := s.prepare(); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(filepath.Join("/var/log", s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Env, cmd.Dir = environment(), "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	if err := cmd.Start(); err != nil {
		return err
	}
	s.running.Store(true)
	defer s.running.Store(false)
	return cmd.Wait()
}

func (s *service) stop() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.cancel == nil {
		return
	}
	s.cancel()
	<-s.done
	s.cancel = nil
}

// state as systemctl is-active prints it.
func (s *service) state() string {
	if s.running.Load() {
		return "active"
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.cancel != nil {
		return "activating"
	}
	return "inactive"
}
