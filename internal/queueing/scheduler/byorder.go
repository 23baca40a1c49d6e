package scheduler

import (
	"cmp"
	"slices"
	"strings"
)

// byOrder gives running jobs in an order. They are put roughly in order at first; what is asked for is sorted when it is.
type byOrder struct {
	running *running
	keys    []orderKey
	// ends of the rough parts; of these so many are sorted, up to a place.
	ends         []int32
	parts, ready int
}

// orderKey orders by first, then by second, then by the job's UID.
type orderKey struct {
	first, second int64
	job           int32
}

// roughly is the number of parts.
const roughly = 4096

func (r *running) inOrder(keys []orderKey) *byOrder {
	o := &byOrder{running: r, keys: make([]orderKey, len(keys)), ends: make([]int32, roughly)}
	if len(keys) == 0 {
		return o
	}
	least, most := keys[0].first, keys[0].first
	for i := range keys {
		least, most = min(least, keys[i].first), max(most, keys[i].first)
	}
	width := (most-least)/roughly + 1
	for i := range keys {
		o.ends[(keys[i].first-least)/width]++
	}
	from := int32(0)
	for i, count := range o.ends {
		o.ends[i] = from
		from += count
	}
	for i := range keys {
		at := &o.ends[(keys[i].first-least)/width]
		o.keys[*at] = keys[i]
		*at++
	}
	return o
}

// at is the job at a place of the order, -1 after the last.
func (o *byOrder) at(i int) int32 {
	if i >= len(o.keys) {
		return -1
	}
	for o.ready <= i {
		end := int(o.ends[o.parts])
		slices.SortFunc(o.keys[o.ready:end], func(a, b orderKey) int {
			if order := cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second)); order != 0 {
				return order
			}
			return strings.Compare(string(o.running.jobs[a.job].UID), string(o.running.jobs[b.job].UID))
		})
		o.parts, o.ready = o.parts+1, end
	}
	return o.keys[i].job
}
