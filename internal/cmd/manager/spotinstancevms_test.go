package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSpotFlagsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		flags spotOptions
		want  string
	}{
		"the defaults":       {flags: spotOptions{listInterval: 30 * time.Second}},
		"another endpoint":   {flags: spotOptions{listInterval: time.Second, gcpEndpoint: "http://127.0.0.1:8080"}},
		"lists all the time": {spotOptions{listInterval: time.Millisecond}, "--cloud-list-interval: 1ms is less than 1s: choose at least 1s"},
		"no endpoint":        {spotOptions{listInterval: time.Second, gcpEndpoint: "compute"}, `--gcp-endpoint: "compute" is no URL: write for example`},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.flags.validate()
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.want)
		})
	}
}
