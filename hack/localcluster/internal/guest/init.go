package guest

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// Init is the machine's first process, in namespaces of its own of processes, mounts, network and names. It makes the
// machine's view of the file system, starts the supervisor, and collects every process that has lost its parent. When
// it ends, the kernel ends all others and takes the mounts away.
func Init(disk string) error {
	config, err := Load(disk)
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return fmt.Errorf("this is the first process of a machine and cannot be called by hand: use localcluster machine up")
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGPWR)
	go func() {
		<-signals
		os.Exit(0)
	}()
	if err := mount(config); err != nil {
		return fmt.Errorf("file system of machine %s: %w", config.Name, err)
	}
	if err := syscall.Sethostname([]byte(config.Name)); err != nil {
		return err
	}
	if err := setUpNetwork(config); err != nil {
		return fmt.Errorf("network of machine %s: %w", config.Name, err)
	}
	self := bin + "/localcluster"
	supervisor, err := syscall.ForkExec(self, []string{self, "machine", "supervise", ConfigPath}, &syscall.ProcAttr{
		Dir: "/", Env: environment(), Files: []uintptr{0, 1, 2},
	})
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if pid == supervisor {
			return fmt.Errorf("the supervisor of machine %s has ended with %d", config.Name, status.ExitStatus())
		}
	}
}

// bin is where programs of the machine and of the cluster are, first on every PATH.
const bin = "/usr/local/bin"

// ConfigPath is where the machine finds its Config.
const ConfigPath = "/run/localcluster/disk"

// environment of all processes of the machine. It keeps the mark by which the cluster finds its processes.
func environment() []string {
	env := []string{"PATH=" + bin + ":/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	if owner, ok := os.LookupEnv(process.MarkVariable); ok {
		env = append(env, process.MarkVariable+"="+owner)
	}
	return env
}
