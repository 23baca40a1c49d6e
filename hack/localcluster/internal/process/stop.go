package process

import (
	"context"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollEvery is the interval at which a process that should end is checked.
const pollEvery = 20 * time.Millisecond

// Stop asks the process to end (SIGTERM) and ends it (SIGKILL) when it still runs after grace. It
// returns when the process is gone, and reports whether it had to be killed. A process that is gone
// already, or whose id now belongs to another, is left alone.
func Stop(id Identity, grace time.Duration) (killed bool) {
	if !id.Alive() {
		return false
	}
	_ = syscall.Kill(id.PID, syscall.SIGTERM)
	if gone(id, grace) {
		return false
	}
	Kill(id)
	return true
}

// Kill ends the process at once and waits until it is gone, a few seconds at most: a process that
// hangs in the kernel cannot be waited for.
func Kill(id Identity) {
	if !id.Alive() {
		return
	}
	_ = syscall.Kill(id.PID, syscall.SIGKILL)
	gone(id, 5*time.Second)
}

// StopAll stops all processes at the same time and returns the names of those that had to be killed.
func StopAll(records []Record, grace time.Duration) (killed []string) {
	var group sync.WaitGroup
	var guard sync.Mutex
	for _, record := range records {
		group.Go(func() {
			if Stop(record.Identity, grace) {
				guard.Lock()
				defer guard.Unlock()
				killed = append(killed, record.Name)
			}
		})
	}
	group.Wait()
	return killed
}

func gone(id Identity, limit time.Duration) bool {
	return wait.PollUntilContextTimeout(context.Background(), pollEvery, limit, true, func(context.Context) (bool, error) {
		return !id.Alive(), nil
	}) == nil
}
