package nodeagent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/preemption"
	"github.com/dcnlab/spot-training-operator/internal/preemption/metadata"
)

func TestPlanFor(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	mark := func(source preemption.Source, at time.Time) *preemption.Notice {
		return &preemption.Notice{Source: source, Time: at}
	}
	for name, test := range map[string]struct {
		preempted, maintenance string
		want                   plan
	}{
		"nothing is known":           {"", "", plan{}},
		"all is well":                {"FALSE", "NONE", plan{clear: []preemption.Source{preemption.MetadataServer, preemption.HostMaintenance}}},
		"of one nothing is known":    {"FALSE", "", plan{clear: []preemption.Source{preemption.MetadataServer}}},
		"it is preempted":            {"TRUE", "NONE", plan{mark: mark(preemption.MetadataServer, now)}},
		"its host is maintained":     {"FALSE", "TERMINATE_ON_HOST_MAINTENANCE", plan{clear: []preemption.Source{preemption.MetadataServer}, mark: mark(preemption.HostMaintenance, now.Add(1))}},
		"it moves to another host":   {"FALSE", "MIGRATE_ON_HOST_MAINTENANCE", plan{clear: []preemption.Source{preemption.MetadataServer, preemption.HostMaintenance}}},
		"preemption goes before all": {"TRUE", "TERMINATE_ON_HOST_MAINTENANCE", plan{mark: mark(preemption.MetadataServer, now)}},
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
