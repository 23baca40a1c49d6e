package scheduler

import "cmp"

// byOrder gives running jobs in an order, which is worked out as far as it is asked for.
type byOrder struct {
	rest  heap[orderKey]
	known []int32
}

// orderKey orders by first, then by second, then by the job's UID.
type orderKey struct {
	first, second int64
	job           int32
}

func (r *running) inOrder(keys []orderKey) *byOrder {
	o := &byOrder{rest: heap[orderKey]{items: keys, less: func(a, b orderKey) bool {
		order := cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.second, b.second))
		return order < 0 || order == 0 && r.jobs[a.job].UID < r.jobs[b.job].UID
	}}}
	o.rest.order()
	return o
}

// at is the job at a place of the order, -1 after the last.
func (o *byOrder) at(i int) int32 {
	for len(o.known) <= i && !o.rest.empty() {
		o.known = append(o.known, o.rest.pop().job)
	}
	if i >= len(o.known) {
		return -1
	}
	return o.known[i]
}
