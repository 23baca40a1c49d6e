package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process holds a lock.
var ErrLocked = errors.New("locked by another process")

// Lock locks a file, which it creates, until unlock or the end of this process. It returns ErrLocked when another process
// holds the lock.
func Lock(path string) (unlock func(), err error) { return flock(path, unix.LOCK_EX|unix.LOCK_NB) }

// LockWait is Lock, but waits for the other process.
func LockWait(path string) (unlock func(), err error) { return flock(path, unix.LOCK_EX) }

func flock(path string, how int) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
