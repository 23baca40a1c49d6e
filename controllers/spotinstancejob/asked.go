package spotinstancejob

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// askedFor is how long a CheckpointBackup that was created counts although the cache does not show it.
const askedFor = 30 * time.Second

// asked remembers the CheckpointBackups that were created a moment ago, which the cache may not show yet: none is to be
// asked for twice.
type asked struct {
	mutex sync.Mutex
	byJob map[types.NamespacedName][]checkpointbackup.Backup
}

func (a *asked) add(job types.NamespacedName, backup checkpointbackup.Backup) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.byJob == nil {
		a.byJob = map[types.NamespacedName][]checkpointbackup.Backup{}
	}
	a.byJob[job] = append(a.byJob[job], backup)
}

// merge adds to the list what it lacks, and forgets what it has or what is old.
func (a *asked) merge(job types.NamespacedName, list []checkpointbackup.Backup, now time.Time) []checkpointbackup.Backup {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	waiting := slices.DeleteFunc(a.byJob[job], func(backup checkpointbackup.Backup) bool {
		return now.Sub(backup.Created) >= askedFor ||
			slices.ContainsFunc(list, func(known checkpointbackup.Backup) bool { return known.Key == backup.Key })
	})
	if len(waiting) == 0 {
		delete(a.byJob, job)
		return list
	}
	a.byJob[job] = waiting
	return append(slices.Clone(list), waiting...)
}

func (a *asked) forget(job types.NamespacedName) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.byJob, job)
}
