package reporting

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pacer spaces the writes of what may wait, such as figures that change all the time. The zero value is ready for use. It is safe for
// concurrent use.
type Pacer struct {
	mutex sync.Mutex
	known map[types.NamespacedName]paced
}

type paced struct{ seen, written, held time.Time }

// Wait is how long to wait until the status of an object was last written so long ago; 0 when it may be written now.
func (p *Pacer) Wait(key types.NamespacedName, interval time.Duration, now time.Time) time.Duration {
	return max(0, p.Last(key).Add(interval).Sub(now))
}

// Hold is how long a change may wait for others to be written with: the interval, from when the first of them was held; 0 when it is due.
func (p *Pacer) Hold(key types.NamespacedName, interval time.Duration, now time.Time) time.Duration {
	held := p.edit(key, func(entry *paced) { entry.held = cmp.Or(entry.held, now) }).held
	return max(0, held.Add(interval).Sub(now))
}

// Release notes that the status of an object is as it was written: nothing is held.
func (p *Pacer) Release(key types.NamespacedName) {
	p.edit(key, func(entry *paced) { entry.held = time.Time{} })
}

// Last is when the status of an object was last written; zero when that is not known.
func (p *Pacer) Last(key types.NamespacedName) time.Time {
	return p.edit(key, func(*paced) {}).written
}

// Seen is when an object was first seen: now, if it was not seen before.
func (p *Pacer) Seen(key types.NamespacedName, now time.Time) time.Time {
	return p.edit(key, func(entry *paced) { entry.seen = cmp.Or(entry.seen, now) }).seen
}

// Wrote notes that the status of an object was written.
func (p *Pacer) Wrote(key types.NamespacedName, now time.Time) {
	p.edit(key, func(entry *paced) { entry.written, entry.held = now, time.Time{} })
}

// edit returns what is known of an object after a change, which is kept when it is one.
func (p *Pacer) edit(key types.NamespacedName, change func(*paced)) paced {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	before := p.known[key]
	after := before
	if change(&after); after != before {
		if p.known == nil {
			p.known = map[types.NamespacedName]paced{}
		}
		p.known[key] = after
	}
	return after
}

// Forget an object that is gone.
func (p *Pacer) Forget(key types.NamespacedName) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.known, key)
}
