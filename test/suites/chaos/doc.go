// Package chaos drives all controllers with a random workload while faults are injected, and checks afterwards what must hold whatever
// happened. API server, controllers of Kubernetes and scheduler are real, the manager is the program that users install, behind a proxy that
// refuses, loses and delays its requests; kubelets are simulated, so that pods and nodes die at any moment, and Compute Engine is
// test/fakes/fakegce. All that is random comes from a seed, which a failure names.
package chaos
