package olm

import (
	"context"
	"fmt"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/manifest"
)

// Status prints how OLM is, its catalogs, and the operators that are installed. It returns false when OLM is not
// installed or not ready.
func (o *OLM) Status(ctx context.Context) (ready bool, err error) {
	out := o.Cluster.Out
	installed, err := o.Installed(ctx)
	if err != nil {
		return false, err
	}
	if !installed {
		fmt.Fprintln(out, "OLM is not installed: localcluster olm up")
		return false, nil
	}
	for _, table := range []manifest.Table{
		{Title: "CATALOG\tIMAGE\tSTATE", Resource: catalogs, Columns: []manifest.Column{
			manifest.Field("spec", "image"), manifest.Field("status", "connectionState", "lastObservedState"),
		}},
		{Title: "SUBSCRIPTION\tPACKAGE\tCHANNEL\tINSTALLED\tSTATE", Resource: subscriptions, Columns: []manifest.Column{
			manifest.Field("spec", "name"), manifest.Field("spec", "channel"), manifest.Field("status", "installedCSV"), manifest.Field("status", "state"),
		}},
		// Copies show an operator in the namespaces that it serves; they say nothing new.
		{Title: "OPERATOR\tVERSION\tPHASE\tREASON", Resource: csvs, Selector: "!olm.copiedFrom", Columns: []manifest.Column{
			manifest.Field("spec", "version"), manifest.Field("status", "phase"), manifest.Field("status", "reason"),
		}},
	} {
		if err := table.Print(ctx, o.objects, out); err != nil {
			return false, err
		}
	}
	for _, condition := range o.conditions() {
		if err := condition.check(ctx); err != nil {
			fmt.Fprintf(out, "not ready: not true that %s: %v\n%s\n", condition.what, err, manifest.Explain(ctx, o.kube, Namespace))
			return false, nil
		}
	}
	fmt.Fprintln(out, "ready")
	return true, nil
}
