package chaos

import (
	"fmt"
	"strings"
)

// How an object and its update can end. Each is counted once it is seen.
const (
	accepted      = "accepted, with a condition"
	refused       = "refused, naming the field"
	updated       = "update taken and observed"
	updateRefused = "update refused, naming the field"
)

var outcomeNames = []string{accepted, refused, updated, updateRefused}

// outcomes counts how the objects of each kind end.
type outcomes struct {
	kinds  []*kind
	counts *tally
}

func newOutcomes(all []*kind) *outcomes {
	var names []string
	for _, k := range all {
		for _, outcome := range outcomeNames {
			names = append(names, k.String()+" "+outcome)
		}
	}
	return &outcomes{all, newTally(names...)}
}

func (o *outcomes) add(k *kind, outcome string) { o.counts.add(k.String() + " " + outcome) }

func (o *outcomes) never() []string { return o.counts.never() }

// String is a table with a line for each kind, and one for all.
func (o *outcomes) String() string {
	o.counts.mu.Lock()
	defer o.counts.mu.Unlock()
	var text strings.Builder
	line := func(name string, cells ...any) {
		fmt.Fprintf(&text, "%-16s", name)
		for i, cell := range cells {
			fmt.Fprintf(&text, "  %*v", len(outcomeNames[i]), cell)
		}
		text.WriteByte('\n')
	}
	line("kind", accepted, refused, updated, updateRefused)
	sums := make([]int, len(outcomeNames))
	for _, k := range o.kinds {
		cells := make([]any, len(outcomeNames))
		for i, outcome := range outcomeNames {
			n := o.counts.counts[k.String()+" "+outcome]
			sums[i] += n
			cells[i] = n
		}
		line(k.String(), cells...)
	}
	cells := make([]any, len(sums))
	for i, sum := range sums {
		cells[i] = sum
	}
	line("all", cells...)
	return text.String()
}
