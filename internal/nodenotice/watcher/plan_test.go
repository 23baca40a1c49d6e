package watcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice/metadata"
)

func TestPlanFor(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	mark := func(source nodenotice.Source, at time.Time) *nodenotice.Notice {
		return &nodenotice.Notice{Source: source, Time: at}
	}
	for name, test := range map[string]struct {
		preempted, maintenance string
		want                   plan
	}{
		"nothing is known":           {"", "", plan{}},
		"all is well":                {"FALSE", "NONE", plan{clear: []nodenotice.Source{nodenotice.MetadataServer, nodenotice.HostMaintenance}}},
		"of one nothing is known":    {"FALSE", "", plan{clear: []nodenotice.Source{nodenotice.MetadataServer}}},
		"it is preempted":            {"TRUE", "NONE", plan{mark: mark(nodenotice.MetadataServer, now)}},
		"its host is maintained":     {"FALSE", "TERMINATE_ON_HOST_MAINTENANCE", plan{clear: []nodenotice.Source{nodenotice.MetadataServer}, mark: mark(nodenotice.HostMaintenance, now.Add(1))}},
		"it moves to another host":   {"FALSE", "MIGRATE_ON_HOST_MAINTENANCE", plan{clear: []nodenotice.Source{nodenotice.MetadataServer, nodenotice.HostMaintenance}}},
		"preemption goes before all": {"TRUE", "TERMINATE_ON_HOST_MAINTENANCE", plan{mark: mark(nodenotice.MetadataServer, now)}},
	} {
		t.Run(name, func(t *testing.T) {
			known := map[string]told{}
			for key, is := range map[string]told{
				metadata.KeyPreempted:   {metadata.KeyPreempted, test.preempted, now},
				metadata.KeyMaintenance: {metadata.KeyMaintenance, test.maintenance, now.Add(1)},
			} {
				if is.text != "" {
					known[key] = is
				}
			}
			assert.Equal(t, test.want, planFor(known))
		})
	}
}
