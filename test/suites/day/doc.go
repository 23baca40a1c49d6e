// Package day lets the operator live through a day with spot instances in minutes: real controllers and a real API server,
// a fake Compute Engine, and a clock that jumps to what comes next as soon as nothing more happens.
package day
