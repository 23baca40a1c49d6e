package store

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
)

// A content that is condemned is sent again by the next upload, and its checkpoints do not count until then.
func TestAContentIsCondemnedByTwoWholeReadingsOnly(t *testing.T) {
	wrong, network := manifest.Mismatch("state.pt"), errors.New("connection reset")
	for name, test := range map[string]struct {
		readings []error
		cutAfter int // readings
		damaged  bool
		want     error
	}{
		"right":                            {readings: []error{nil}},
		"wrong twice":                      {readings: []error{wrong, wrong}, damaged: true, want: wrong},
		"wrong once":                       {readings: []error{wrong, nil}},
		"wrong, and then not to be read":   {readings: []error{wrong, network}, want: network},
		"not to be read":                   {readings: []error{network}, want: network},
		"wrong when it was cut off":        {readings: []error{wrong}, cutAfter: 1, want: wrong},
		"wrong again when it was cut off":  {readings: []error{wrong, wrong}, cutAfter: 2, want: wrong},
		"right although another one ended": {readings: []error{nil}, cutAfter: 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cut := context.WithCancel(t.Context())
			defer cut()
			done := 0
			damaged, err := confirmed(ctx, func() error {
				done++
				if done == test.cutAfter {
					cut()
				}
				return test.readings[done-1]
			})
			assert.Equal(t, test.damaged, damaged)
			assert.Equal(t, test.want, err)
			assert.Len(t, test.readings, done)
		})
	}
}
