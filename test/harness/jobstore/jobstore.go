// Package jobstore opens the store of the job service for a test.
package jobstore

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
)

// Open opens a store, waits until it can be used, and closes it with the test. It logs nothing unless the variable STORE_LOG is set. Unless
// the options say how long the store waits for its servers, it waits longer than a disk is ever busy with the other tests.
func Open(t testing.TB, options engine.Options) *engine.Store {
	t.Helper()
	options.OperationTimeout = cmp.Or(options.OperationTimeout, time.Minute)
	if os.Getenv("STORE_LOG") != "" {
		options.Logger = testr.NewWithInterface(t, testr.Options{Verbosity: 1})
	}
	store, err := engine.New(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.Eventually(t, func() bool {
		for _, err := range store.Check(t.Context()) {
			if err != nil {
				return false
			}
		}
		return true
	}, 20*time.Second, 5*time.Millisecond)
	return store
}
