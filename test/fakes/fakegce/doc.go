// Package fakegce is a Compute Engine for tests: a server that answers as Google's does, as far as the operator uses it,
// and refuses what Google would refuse.
//
// Every request is held against the discovery document that ships in google.golang.org/api: method, path, query
// parameters and, field by field, the body. What does not fit is answered with 400 and kept as a violation; Start fails
// the test for it. Instances and operations go through the states of the real ones, driven by an injected clock. A test
// can let a zone run out of stock, use up a quota, take instances back, deny, limit, lose answers and deliver a request
// twice; and it can boot a node when an instance runs (Hooks), to which Metadata is the metadata server.
package fakegce
