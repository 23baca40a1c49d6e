package cluster

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// lock keeps two commands from starting and stopping the same cluster at once.
func lock(layout Layout) (unlock func(), err error) {
	unlock, err = host.Lock(filepath.Join(layout.State, "lock"))
	if errors.Is(err, host.ErrLocked) {
		return nil, fmt.Errorf("another localcluster command works on %s; wait for it to end", layout.State)
	}
	return unlock, err
}
