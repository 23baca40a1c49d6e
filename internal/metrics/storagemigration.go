package metrics

import "github.com/prometheus/client_golang/prometheus"

// StorageMigrations counts what the migration of stored objects to a new storage version does, by the name of the CRD.
type StorageMigrations struct {
	migrated, failures *prometheus.CounterVec
	remaining          *prometheus.GaugeVec
}

// NewStorageMigrations registers the metrics.
func NewStorageMigrations(registry prometheus.Registerer) *StorageMigrations {
	all := in(registry)
	return &StorageMigrations{
		migrated:  all.counter("storage_migration_objects_total", "Objects rewritten in the storage version of their CRD.", "crd"),
		failures:  all.counter("storage_migration_failures_total", "Failed attempts to rewrite an object, or to migrate a CRD at all.", "crd"),
		remaining: all.gauge("storage_migration_remaining_objects", "Objects that the migration in progress has yet to rewrite; 0 when there is none.", "crd"),
	}
}

// Migrated counts a rewritten object.
func (m *StorageMigrations) Migrated(crd string) { m.migrated.WithLabelValues(crd).Inc() }

// Failed counts a failed attempt.
func (m *StorageMigrations) Failed(crd string) { m.failures.WithLabelValues(crd).Inc() }

// Remaining tells how many objects are yet to be written.
func (m *StorageMigrations) Remaining(crd string, objects int64) {
	m.remaining.WithLabelValues(crd).Set(float64(objects))
}
