package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSpotFlagsAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		flags controllerOptions
		want  string
	}{
		"the defaults":       {flags: controllerOptions{cloudListInterval: 30 * time.Second}},
		"another endpoint":   {flags: controllerOptions{cloudListInterval: time.Second, gcpEndpoint: "http://127.0.0.1:8080"}},
		"lists all the time": {flags: controllerOptions{cloudListInterval: time.Millisecond}, want: "--cloud-list-interval: 1ms is less than 1s: choose at least 1s"},
		"no endpoint":        {flags: controllerOptions{cloudListInterval: time.Second, gcpEndpoint: "compute"}, want: `--gcp-endpoint: "compute" is not a valid URL: write for example`},
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
