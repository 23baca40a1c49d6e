package cluster

import (
	"slices"
	"testing"
)

func TestDevicesOfPodsAreKnownByTheirRoutes(t *testing.T) {
	const routes = `[
		{"dst":"10.78.0.3","dev":"veth1a2b","scope":"host","src":"10.78.0.1","flags":[]},
		{"dst":"10.78.0.4","dev":"veth3c4d","scope":"host","flags":[]},
		{"dst":"10.78.0.5","dev":"veth3c4d","scope":"host","flags":[]},
		{"dst":"10.78.4.0/24","gateway":"10.77.0.5","dev":"lc0","flags":[]},
		{"dst":"10.78.0.9","dev":"eth0","flags":[]}]`
	for name, test := range map[string]struct {
		routes string
		want   []string
		fails  bool
	}{
		"pods, a machine and another device": {routes, []string{"veth1a2b", "veth3c4d"}, false},
		"no route at all":                    {"", nil, false},
		"no JSON":                            {"Error", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			devices, err := podDevices([]byte(test.routes))
			if (err != nil) != test.fails || !slices.Equal(devices, test.want) {
				t.Errorf("got %v, %v; want %v", devices, err, test.want)
			}
		})
	}
}
