package admission

import (
	"sync"
	"time"
)

// figuresEvery is how far apart the figures in a status are written while they change all the time.
const figuresEvery = 3 * time.Second

// Pace says when figures may be written again.
type Pace struct {
	mutex   sync.Mutex
	written map[string]time.Time
}

// Wait is how long to wait before the figures of an object are written; 0 for now.
func (p *Pace) Wait(name string, now time.Time) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return max(0, p.written[name].Add(figuresEvery).Sub(now))
}

// Written notes that they were.
func (p *Pace) Written(name string, now time.Time) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.written == nil {
		p.written = map[string]time.Time{}
	}
	p.written[name] = now
}

// Forget an object that is gone.
func (p *Pace) Forget(name string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.written, name)
}
