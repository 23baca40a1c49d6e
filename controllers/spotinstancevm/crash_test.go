package spotinstancevm

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

// story is something that a manager brings to an end, even when it crashes on the way and another one takes over.
type story struct {
	// before happens with a manager that does not crash.
	before func(*cluster)
	// begin happens when the manager that crashes runs.
	begin func(*cluster)
	// reached says whether the end is near: nothing but tidying up may be left to do. end waits for the end and checks it.
	reached func(*cluster) bool
	end     func(*cluster)
	// points is the least number of points at which the manager must have crashed, so that the test is known to have
	// found some.
	points int
}

// atOnce is how many points are tried at the same time: most of the time each waits.
const atOnce = 6

// eachPoint lets a manager crash after the first thing that it does to the world, after the second, and so on, until it
// comes to the end of the story without a crash. What those things are is counted while it runs: a manager that does more
// is cut off at more points.
func eachPoint(t *testing.T, s story) {
	api.Config(t) // before several ask for it at once
	var mu sync.Mutex
	last, crashes := map[string]int{}, 0
	for first := 1; ; first += atOnce {
		through, failed := false, false
		var group sync.WaitGroup
		for point := first; point < first+atOnce; point++ {
			group.Go(func() {
				at := ""
				ok := t.Run(fmt.Sprintf("point %d", point), func(t *testing.T) { at = s.tell(t, point) })
				mu.Lock()
				defer mu.Unlock()
				failed = failed || !ok
				if at == "" {
					through = true
					return
				}
				crashes++
				last[at]++
			})
		}
		group.Wait()
		if failed || through {
			break
		}
	}
	t.Logf("crashed at %d points, after:", crashes)
	for _, at := range slices.Sorted(maps.Keys(last)) {
		t.Logf("%3d x %s", last[at], at)
	}
	assert.GreaterOrEqual(t, crashes, s.points)
}

// names in what a manager did that differ from run to run.
var random = regexp.MustCompile(`test-[a-z0-9]+|t4-[a-z0-9]{5}|bootstrap-token-[a-z0-9]+`)

// tell the story with a manager that crashes at a point. It returns after what it crashed; nothing when it came to the end.
func (s story) tell(t *testing.T, point int) (crashedAfter string) {
	c := newCluster(t)
	if s.before != nil {
		m := c.start(newFuse(0))
		s.before(c)
		m.stop()
	}
	f := newFuse(point)
	m := c.start(f)
	s.begin(c)
	if !s.blows(c, f) {
		s.end(c)
		return ""
	}
	m.stop()
	steps := f.log()
	defer func() {
		if t.Failed() {
			t.Logf("the manager crashed after %q", steps)
		}
	}()
	c.start(newFuse(0))
	s.end(c)
	return random.ReplaceAllString(steps[len(steps)-1], "...")
}

// calm is how long nothing must have happened after the end was reached for a story to be over.
const calm = 1500 * time.Millisecond

// blows waits until the fuse blows, or the story is over.
func (s story) blows(c *cluster, f *fuse) bool {
	steps, since := 0, time.Now()
	for begun := time.Now(); time.Since(begun) < patience && (time.Since(since) < calm || !s.reached(c)); {
		select {
		case <-f.blown:
			return true
		case <-time.After(glance):
			c.schedule()
		}
		if now := len(f.log()); now != steps {
			steps, since = now, time.Now()
		}
	}
	f.disarm()
	return false
}

// instances says whether so many are ready and known to both sides.
func instances(n int) func(*cluster) bool {
	return func(c *cluster) bool {
		vm := c.now(c.ref("t4"))
		return vm != nil && c.agree(n)(vm)
	}
}

// gone says whether nothing is left of the SpotInstanceVM.
func gone(c *cluster) bool { return c.now(c.ref("t4")) == nil }

func (c *cluster) ref(name string) *spotv1alpha1.SpotInstanceVM {
	return &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace}}
}

// settled waits until so many instances are ready and known to both sides, and stay.
func (c *cluster) settled(n, ever int) {
	c.t.Helper()
	c.await(c.ref("t4"), fmt.Sprintf("%d instances", n), c.agree(n))
	for range 10 { // three lists later it is still so
		time.Sleep(100 * time.Millisecond)
		c.schedule()
	}
	vm := c.await(c.ref("t4"), fmt.Sprintf("%d instances, still", n), c.agree(n))
	assert.Len(c.t, c.gce.History(), ever, "instances that ever were: each of them is paid for")
	assert.Len(c.t, vm.Status.ProvisionedInstances, n)
	assert.Len(c.t, c.nodes("t4"), n)
}

func TestAPINoCrashWhileInstancesAreCreatedLeaksOrDoublesOne(t *testing.T) {
	t.Parallel()
	eachPoint(t, story{
		begin: func(c *cluster) {
			c.vm("t4")
			c.pod("t4", "bert", 0)
			c.pod("t4", "bert", 1)
		},
		reached: instances(2),
		end:     func(c *cluster) { c.settled(2, 2) },
		points:  12,
	})
}

func TestAPINoCrashAfterAStockoutLeaksOrDoublesOne(t *testing.T) {
	t.Parallel()
	eachPoint(t, story{
		begin: func(c *cluster) {
			c.gce.StockOut(zoneA)
			c.vm("t4")
			c.pod("t4", "bert", 0)
		},
		reached: instances(1),
		// The one in the first zone was never granted.
		end: func(c *cluster) {
			vm := c.await(c.ref("t4"), "an instance", c.agree(1))
			assert.Equal(c.t, zoneB, vm.Status.ProvisionedInstances[0].Zone)
			c.settled(1, len(c.gce.History()))
			granted := slices.DeleteFunc(c.gce.History(), func(i fakegce.Instance) bool { return i.Running.IsZero() })
			assert.Len(c.t, granted, 1)
		},
		points: 10,
	})
}

func TestAPINoCrashDuringAPreemptionLeaksOrDoublesOne(t *testing.T) {
	t.Parallel()
	eachPoint(t, story{
		before: func(c *cluster) {
			c.vm("t4")
			c.pod("t4", "bert", 0)
			c.pod("t4", "bert", 1)
			c.settled(2, 2)
			// The tokens are revoked before the story begins.
			eventually(c.t, "the tokens to be revoked", func() bool { return len(c.tokens()) == 0 })
		},
		begin: func(c *cluster) {
			victim := c.gce.Instances()[0]
			require.NoError(c.t, c.gce.Preempt(victim.Name))
		},
		reached: func(c *cluster) bool { return len(c.gce.History()) == 3 && instances(2)(c) },
		end:     func(c *cluster) { c.settled(2, 3) },
		points:  12,
	})
}

func TestAPINoCrashWhileASpotInstanceVMIsDeletedLeaksAnInstance(t *testing.T) {
	t.Parallel()
	eachPoint(t, story{
		before: func(c *cluster) {
			c.vm("t4")
			c.pod("t4", "bert", 0)
			c.pod("t4", "bert", 1)
			c.settled(2, 2)
			eventually(c.t, "the tokens to be revoked", func() bool { return len(c.tokens()) == 0 })
		},
		begin:   func(c *cluster) { require.NoError(c.t, c.Delete(c.t.Context(), c.ref("t4"))) },
		reached: gone,
		end:     func(c *cluster) { c.nothingLeft(2) },
		// Each instance: the intent, the request, its operation, the node, the status; and the finalizer.
		points: 9,
	})
}

func TestAPINoCrashWhileInstancesAreCreatedAndDeletedAtOnceLeaksOne(t *testing.T) {
	t.Parallel()
	eachPoint(t, story{
		begin: func(c *cluster) {
			c.vm("t4")
			c.pod("t4", "bert", 0)
			c.pod("t4", "bert", 1)
			eventually(c.t, "the first instance", func() bool { return len(c.gce.History()) > 0 || !c.alive() })
			require.NoError(c.t, c.Delete(c.t.Context(), c.ref("t4")))
		},
		reached: gone,
		end:     func(c *cluster) { c.nothingLeft(2) },
		points:  12,
	})
}

// nothingLeft waits until nothing is left of the SpotInstanceVM, and checks that at most so many instances ever were.
func (c *cluster) nothingLeft(ever int) {
	c.t.Helper()
	eventually(c.t, "the end of the SpotInstanceVM", func() bool { return gone(c) })
	assert.Empty(c.t, c.gce.Instances(), "the finalizer goes after the instances")
	time.Sleep(calm)
	assert.Empty(c.t, c.gce.Instances())
	assert.LessOrEqual(c.t, len(c.gce.History()), ever)
	assert.Empty(c.t, c.nodes("t4"))
	assert.Empty(c.t, c.tokens())
}
