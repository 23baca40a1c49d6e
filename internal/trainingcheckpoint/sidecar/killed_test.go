package sidecar_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// The grace period can end at any moment after SIGTERM, and nothing can be written then: what lies in the termination message must
// be right at each of them.
func TestTheTerminationMessageIsRightWhileTheLastCheckpointIsSent(t *testing.T) {
	s := stores.NewS3(t, stores.AnyPort)
	s.MakeBucket(bucket)
	proxy := stores.NewProxy(t, strings.TrimPrefix(s.Endpoint, "http://"))
	settings := with(t, s.URLVia("http://"+proxy.Address, bucket, prefix), s.Secret())
	directory := settings.Directory.Path
	syncing := start(t, sidecar.Sync, settings)
	take(t, directory, "checkpoint-epoch-1", 1, 12, epoch(1))
	syncing.eventually("epoch 1 is in the store", newest("checkpoint-epoch-1"))

	left := func(what string, is func(report.Report) bool) {
		t.Helper()
		var last string
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(settings.TerminationPath)
			last = string(text)
			words, ok := report.Parse(text)
			return err == nil && ok && is(words)
		}, patience, 1e6, "%s", what)
		t.Log(last)
	}
	proxy.Limit(200 << 10)
	before := proxy.Moved()
	take(t, directory, "checkpoint-epoch-2", 2, 24, files{"state.pt": noise(2, 4<<20)})
	require.Eventually(t, func() bool { return proxy.Moved() > before+300<<10 }, patience, 1e6, "it is being sent")
	syncing.cancel()
	left("epoch 2 is not in the store", func(r report.Report) bool {
		return newestIs(r, "checkpoint-epoch-1") && problem(report.ReasonCheckpointNotStored)(r) &&
			strings.HasPrefix(r.Problem.Message, "checkpoint-epoch-2 had not reached the storage")
	})
	take(t, directory, "checkpoint-epoch-3", 3, 36, epoch(3))
	proxy.Limit(0)
	last := syncing.end(nil)
	assert.Equal(t, report.PhaseDone, last.Phase)
	assert.True(t, newest("checkpoint-epoch-3")(last), "%+v", last)
}

func newestIs(r report.Report, name string) bool {
	return r.Newest != nil && strings.HasSuffix(r.Newest.Path, "/"+name)
}
