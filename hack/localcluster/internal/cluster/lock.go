package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps two commands from starting and stopping the same cluster at once. The kernel releases it
// when the holder ends, however it ends.
func lock(layout Layout) (unlock func(), err error) {
	if err := os.MkdirAll(layout.State, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(layout.State, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another localcluster command is at work on %s; wait for it to end", layout.State)
	}
	return func() { file.Close() }, nil
}
