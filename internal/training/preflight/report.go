// Package preflight checks, before a training begins, that each of its workers reaches every other: by its name, at the port at which they
// gather, and at a port chosen at random, as collective libraries choose theirs.
//
// Each worker serves its own view, and asks every other for its view until it has reached all. Replica 0 reads the views of the others,
// serves a Report of all of them to the manager, and lets the others go once all have reached one another.
package preflight

import (
	"cmp"
	"slices"
)

const (
	// Container is the name of the init container that checks the network.
	Container = "network-preflight"
	// ReportPath answers a GET with a Report, at replica 0.
	ReportPath = "/v1/network"
	// MaxPairs bounds the pairs of a Report.
	MaxPairs = 20
)

// Cause is why a worker does not reach another.
type Cause string

// The causes.
const (
	// NotResolved: the name of the worker has no address.
	NotResolved Cause = "NotResolved"
	// NoAnswer: the address of the worker does not answer.
	NoAnswer Cause = "NoAnswer"
	// Refused: a connection is refused, or another program answers.
	Refused Cause = "Refused"
)

// Pair is a worker that does not reach another.
type Pair struct {
	// From and To are the indexes of the replicas.
	From int `json:"from"`
	To   int `json:"to"`
	// Cause of it, and what was seen.
	Cause  Cause  `json:"cause"`
	Detail string `json:"detail"`
}

// Report is what replica 0 knows of all workers.
type Report struct {
	// Pairs that have not reached one another for a while, at most MaxPairs.
	Pairs []Pair `json:"pairs,omitempty"`
	// More is how many pairs there are beside these.
	More int `json:"more,omitempty"`
}

// newReport puts the pairs into an order that does not change, and leaves out what is too much.
func newReport(pairs []Pair) Report {
	slices.SortFunc(pairs, func(a, b Pair) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	shown := min(len(pairs), MaxPairs)
	return Report{Pairs: pairs[:shown], More: len(pairs) - shown}
}
