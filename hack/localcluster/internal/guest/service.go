package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// service is a process that is kept running once it is started.
type service struct {
	name    string
	command []string
	// prepare runs before each start; may be nil.
	prepare func() error

	mutex   sync.Mutex
	wanted  bool
	running *os.Process
	ended   chan struct{}
}

// restartAfter is the pause before a service that has ended is started again.
const restartAfter = time.Second

// start has the service run, until stop.
func (s *service) start() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.wanted {
		return
	}
	s.wanted = true
	s.ended = make(chan struct{})
	go s.keep(s.ended)
}

// keep runs the service again and again.
func (s *service) keep(ended chan struct{}) {
	defer close(ended)
	for {
		if err := s.run(); err != nil {
			fmt.Printf("%s: %v\n", s.name, err)
		}
		s.mutex.Lock()
		wanted := s.wanted
		s.mutex.Unlock()
		if !wanted {
			return
		}
		time.Sleep(restartAfter)
	}
}

// run runs the service once.
func (s *service) run() error {
	if s.prepare != nil {
		if err := s.prepare(); err != nil {
			return err
		}
	}
	log, err := openLog(s.name)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.command[0], s.command[1:]...)
	cmd.Env, cmd.Dir = environment(), "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.mutex.Lock()
	if !s.wanted {
		s.mutex.Unlock()
		return nil
	}
	err = cmd.Start()
	s.running = cmd.Process
	s.mutex.Unlock()
	if err != nil {
		return err
	}
	err = cmd.Wait()
	s.mutex.Lock()
	s.running = nil
	s.mutex.Unlock()
	return err
}

// stop ends the service and waits until it has ended.
func (s *service) stop() {
	s.mutex.Lock()
	if !s.wanted {
		s.mutex.Unlock()
		return
	}
	s.wanted = false
	if s.running != nil {
		_ = s.running.Signal(syscall.SIGTERM)
	}
	ended := s.ended
	s.mutex.Unlock()
	for {
		select {
		case <-ended:
			return
		case <-time.After(10 * time.Second):
			s.mutex.Lock()
			if s.running != nil {
				_ = s.running.Kill()
			}
			s.mutex.Unlock()
		}
	}
}

// state as systemctl is-active prints it.
func (s *service) state() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.running != nil:
		return "active"
	case s.wanted:
		return "activating"
	}
	return "inactive"
}

// openLog opens the log of a service.
func openLog(name string) (*os.File, error) {
	path := filepath.Join("/var/log", name+".log")
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}
