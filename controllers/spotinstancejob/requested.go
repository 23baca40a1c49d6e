package spotinstancejob

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// requestAge is how long a CheckpointBackup that was created counts although the cache does not show it.
const requestAge = 30 * time.Second

// requestedCheckpoints remembers the CheckpointBackups that were created a moment ago, which the cache may not show yet: none is
// requested twice.
type requestedCheckpoints struct {
	mutex sync.Mutex
	byJob map[types.NamespacedName][]checkpointbackup.Backup
}

func (c *requestedCheckpoints) add(job types.NamespacedName, backup checkpointbackup.Backup) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.byJob == nil {
		c.byJob = map[types.NamespacedName][]checkpointbackup.Backup{}
	}
	c.byJob[job] = append(c.byJob[job], backup)
}

// merge adds to the list what it lacks, and forgets what it has or what is old.
func (c *requestedCheckpoints) merge(job types.NamespacedName, list []checkpointbackup.Backup, now time.Time) []checkpointbackup.Backup {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	waiting := slices.DeleteFunc(c.byJob[job], func(backup checkpointbackup.Backup) bool {
		return now.Sub(backup.Created) >= requestAge ||
			slices.ContainsFunc(list, func(known checkpointbackup.Backup) bool { return known.Key == backup.Key })
	})
	if len(waiting) == 0 {
		delete(c.byJob, job)
		return list
	}
	c.byJob[job] = waiting
	return append(slices.Clone(list), waiting...)
}

func (c *requestedCheckpoints) forget(job types.NamespacedName) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.byJob, job)
}
