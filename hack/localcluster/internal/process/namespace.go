package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startIn starts a command in a network namespace. A namespace belongs to a thread of the operating system, so a thread
// of its own enters it, starts the command and ends.
func startIn(namespace string, cmd *exec.Cmd) error {
	if namespace == "" {
		return cmd.Start()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this function
		result <- func() error {
			file, err := os.Open(namespace)
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter %s: %w", namespace, err)
			}
			return cmd.Start()
		}()
	}()
	return <-result
}
