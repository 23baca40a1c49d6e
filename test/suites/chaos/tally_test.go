package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// tally counts, by kind. Its methods are safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

// newTally begins with kinds that are to be counted, each zero times.
func newTally(kinds ...string) *tally {
	t := &tally{counts: map[string]int{}}
	for _, kind := range kinds {
		t.counts[kind] = 0
	}
	return t
}

func (t *tally) add(kind string) { t.addN(kind, 1) }

func (t *tally) addN(kind string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.counts[kind]; !known {
		panic("nothing counts " + kind)
	}
	t.counts[kind] += n
}

// never are the kinds that were not counted yet.
func (t *tally) never() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kinds []string
	for kind, n := range t.counts {
		if n == 0 {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// String is a line for each kind.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var text strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(t.counts)) {
		fmt.Fprintf(&text, "%8d  %s\n", t.counts[kind], kind)
	}
	return text.String()
}
