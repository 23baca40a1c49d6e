// Package replicas kills two replicas of the job service's store, their workers, PostgreSQL and Redis under load, and proves from what
// their clients saw that the replicas kept their word together: each acknowledged job ends exactly once, and none runs under two leases that
// are valid at the same time. Package faults does the like with the job service as a whole, of which it has one.
//
// Replicas, workers, PostgreSQL and Redis are processes, killed with SIGKILL; the network between the replicas and the servers is a proxy
// that holds up or breaks off. The workers and the test write a history of what they were told; the checker reads nothing else, but for
// the ends of jobs, which a trigger in the database notes.
package replicas
