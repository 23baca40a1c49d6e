// Package faults kills the job service, its workers, PostgreSQL and Redis, and cuts the network between them, under load; what clients
// and workers saw then must fit together.
package faults
