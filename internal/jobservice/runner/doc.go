// Package runner runs the jobs of the job service that name an image or are gangs: the Dispatcher leases them and makes an
// AIJob of each, which the operator's controllers admit and run. The package also answers what the service asks a cluster for:
// logs, compute clusters, the limits of queues, workflows, and reviews of tokens and rights.
package runner
