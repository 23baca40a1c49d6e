package http_test

import (
	"testing"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// stores that the contract holds with.
func stores() map[string]func(*testing.T) jobs.Store {
	return map[string]func(*testing.T) jobs.Store{
		"memory": func(*testing.T) jobs.Store { return newMemory() },
	}
}
