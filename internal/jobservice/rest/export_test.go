package rest

import "time"

// LimiterForTest is the limiter alone.
type LimiterForTest struct{ l *limiter }

// NewLimiterForTest returns one.
func NewLimiterForTest(limits Limits) LimiterForTest { return LimiterForTest{newLimiter(limits)} }

// Take counts a POST of a job.
func (l LimiterForTest) Take(client string, now time.Time) bool {
	return l.l.take(classCreate, client, 1, now).ok
}

// Routes of the service, as METHOD path.
func Routes() map[string]string {
	routes := map[string]string{}
	for _, r := range (&service{}).resources() {
		for _, route := range r.routes {
			routes[route.name] = route.scope
		}
	}
	return routes
}
