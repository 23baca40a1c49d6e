package retention_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/retention"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func valid(name string, step int64) retention.Checkpoint {
	return retention.Checkpoint{
		Name: name, Manifest: &manifest.Manifest{Step: step}, Valid: true, Changed: noon.Add(time.Duration(step) * time.Minute),
	}
}

func damaged(name string, minute int) retention.Checkpoint {
	return retention.Checkpoint{Name: name, Changed: noon.Add(time.Duration(minute) * time.Minute)}
}

func TestSurplus(t *testing.T) {
	for name, test := range map[string]struct {
		all    []retention.Checkpoint
		keep   int
		spared string
		want   []string
	}{
		"the oldest go":                  {all: []retention.Checkpoint{valid("b", 20), valid("c", 30), valid("a", 10)}, keep: 2, want: []string{"a"}},
		"fewer than to keep":             {all: []retention.Checkpoint{valid("a", 10)}, keep: 3},
		"0 keeps all":                    {all: []retention.Checkpoint{valid("a", 10), valid("b", 20)}},
		"what was restored stays":        {all: []retention.Checkpoint{valid("a", 10), valid("b", 20), valid("c", 30)}, keep: 1, spared: "a", want: []string{"b"}},
		"damaged ones do not count":      {all: []retention.Checkpoint{valid("a", 10), valid("b", 20), damaged("c", 30)}, keep: 2},
		"old damaged ones go":            {all: []retention.Checkpoint{damaged("x", 5), valid("b", 20), damaged("c", 30)}, keep: 2, want: []string{"x"}},
		"nothing while nothing is valid": {all: []retention.Checkpoint{damaged("x", 5), damaged("y", 6)}, keep: 1},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, retention.Surplus(test.all, test.keep, func(name string) bool { return name == test.spared }))
		})
	}
}

func TestUnreferenced(t *testing.T) {
	assert.True(t, retention.IsUnreferenced(false, noon.Add(-2*time.Hour), noon, time.Hour), "old")
	assert.False(t, retention.IsUnreferenced(true, noon.Add(-2*time.Hour), noon, time.Hour), "used")
	assert.False(t, retention.IsUnreferenced(false, noon.Add(-time.Minute), noon, time.Hour), "new")
}
