package scheduler_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dcnlab/spot-training-operator/internal/scheduler"
)

func TestAGangStartsWholeOrNotAtAll(t *testing.T) {
	node := func(name string, gpus int64) scheduler.Node {
		return scheduler.Node{Name: name, Ready: true, Allocatable: scheduler.Resources{GPUs: gpus, Pods: 10}}
	}
	gang := scheduler.Job{UID: "gang", Groups: []scheduler.Group{{Count: 4, Requests: scheduler.Resources{GPUs: 1}}}}
	few := scheduler.Schedule(scheduler.Snapshot{Nodes: []scheduler.Node{node("a", 2)}, Pending: []scheduler.Job{gang}})
	assert.Empty(t, few.Admitted)
	assert.Equal(t, types.UID("gang"), few.Waiting[0].UID)
	enough := scheduler.Schedule(scheduler.Snapshot{Nodes: []scheduler.Node{node("a", 2), node("b", 3)}, Pending: []scheduler.Job{gang}})
	assert.Equal(t, []string{"a", "a", "b", "b"}, enough.Admitted[0].Nodes)
}
