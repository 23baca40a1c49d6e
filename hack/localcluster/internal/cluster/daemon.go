package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// daemon is a process of the cluster, as templates/daemons.yaml describes it.
type daemon struct {
	// Spec without a program means the file called Name in the binary folder.
	process.Spec
	// Flags, by name, come after the arguments.
	Flags map[string]string
	// Phase orders starting; daemons of one phase start together, and stop together in reverse order.
	Phase string
	// GraceSeconds is how long it may take to end before it is killed.
	GraceSeconds int
}

// The phases of a start in their order.
const serving = "serving"

var phases = []string{"storing", serving, "controlling", "working"}

func daemons(layout Layout, options Options) ([]daemon, error) {
	content, err := render("daemons.yaml", templateValues(layout, options, ""))
	if err != nil {
		return nil, err
	}
	var list []daemon
	if err := yaml.UnmarshalStrict(content, &list); err != nil {
		return nil, fmt.Errorf("read the processes of the cluster: %w", err)
	}
	for i := range list {
		d := &list[i]
		for _, name := range slices.Sorted(maps.Keys(d.Flags)) {
			d.Args = append(d.Args, fmt.Sprintf("--%s=%s", name, d.Flags[name]))
		}
		d.Args = append(d.Args, options.ExtraArgs[d.Name]...)
		if d.Program == "" {
			d.Program = layout.program(d.Name)
		}
		d.Log, d.Owner = layout.log(d.Name), layout.State
		if d.GraceSeconds == 0 {
			d.GraceSeconds = 10
		}
	}
	return list, nil
}

func (d daemon) grace() time.Duration { return time.Duration(d.GraceSeconds) * time.Second }
