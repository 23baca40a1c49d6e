package scheduler

// heap gives the first of its items, by less. (container/heap calls through an interface for each step; the order of
// nodes is asked for too often for that.)
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
}

func (h *heap[T]) empty() bool { return len(h.items) == 0 }

func (h *heap[T]) first() T { return h.items[0] }

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	at := len(h.items) - 1
	for at > 0 {
		above := (at - 1) / 2
		if !h.less(h.items[at], h.items[above]) {
			return
		}
		h.items[at], h.items[above] = h.items[above], h.items[at]
		at = above
	}
}

func (h *heap[T]) pop() T {
	item := h.items[0]
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	h.sink(0)
	return item
}

// order makes a heap of items in any order.
func (h *heap[T]) order() {
	for at := len(h.items)/2 - 1; at >= 0; at-- {
		h.sink(at)
	}
}

// sink puts an item in its place that may have become greater.
func (h *heap[T]) sink(at int) {
	for {
		least := at
		for below := 2*at + 1; below <= 2*at+2 && below < len(h.items); below++ {
			if h.less(h.items[below], h.items[least]) {
				least = below
			}
		}
		if least == at {
			return
		}
		h.items[at], h.items[least] = h.items[least], h.items[at]
		at = least
	}
}
