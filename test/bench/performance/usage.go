package performance

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
)

// clockTick is the unit of times in /proc (USER_HZ).
const clockTick = 10 * time.Millisecond

// ownTime is the name of this program in processorTimes.
const ownTime = "load"

// processorTime is that of user and system together which a process has used.
func processorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	process, err := procfs.NewProc(pid)
	require.NoError(t, err)
	stat, err := process.Stat()
	require.NoError(t, err)
	return time.Duration(stat.UTime+stat.STime) * clockTick
}

// processorTimes is the processor time that this program and each of its child processes has used, by name.
func processorTimes(t testing.TB) map[string]time.Duration {
	t.Helper()
	processes, err := procfs.AllProcs()
	require.NoError(t, err)
	used := map[string]time.Duration{}
	for _, process := range processes {
		stat, err := process.Stat()
		switch {
		case err != nil: // it has ended
		case stat.PID == os.Getpid():
			used[ownTime] += time.Duration(stat.UTime+stat.STime) * clockTick
		case stat.PPID == os.Getpid():
			used[stat.Comm] += time.Duration(stat.UTime+stat.STime) * clockTick
		}
	}
	return used
}

// usedSince is what was used beyond what had been before.
func usedSince(t testing.TB, before map[string]time.Duration) map[string]time.Duration {
	t.Helper()
	used := processorTimes(t)
	for name := range used {
		used[name] -= before[name]
	}
	return used
}

// peakMemory is the most memory of a process that was resident at any time, in bytes.
func peakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	process, err := procfs.NewProc(pid)
	require.NoError(t, err)
	status, err := process.NewStatus()
	require.NoError(t, err)
	return int64(status.VmHWM)
}
