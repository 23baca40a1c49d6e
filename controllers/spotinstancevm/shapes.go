package spotinstancevm

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// shapes remembers what machine types offer, which does not change.
type shapes struct {
	mu  sync.Mutex
	all map[shapeKey]knownShape
}

type shapeKey struct {
	vm          types.UID
	machineType string
}

type knownShape struct {
	shape *cloud.Shape
	err   error
	// asked and tries of a shape that could not be read.
	asked time.Time
	tries int
}

// of returns the shape of a machine type in the first of the zones that has it, or why it is not known.
func (s *shapes) of(
	ctx context.Context, provider cloud.Provider, vm types.UID, machineType string, zones []string, now time.Time, pace Pace,
) (*cloud.Shape, error) {
	key := shapeKey{vm, machineType}
	s.mu.Lock()
	known := s.all[key]
	s.mu.Unlock()
	if known.shape != nil || (known.tries > 0 && now.Before(known.asked.Add(pace.retryIn(known.tries)))) {
		return known.shape, known.err
	}
	known.asked = now
	for _, zone := range zones {
		shape, err := provider.Shape(ctx, zone, machineType)
		known.err = err
		if err == nil {
			known.shape = &shape
			break
		}
	}
	known.tries++
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[shapeKey]knownShape{}
	}
	s.all[key] = known
	return known.shape, known.err
}
