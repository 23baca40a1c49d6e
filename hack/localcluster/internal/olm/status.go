package olm

import (
	"context"
	"fmt"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	for _, list := range []struct {
		title    string
		resource schema.GroupVersionResource
		columns  []column
	}{
		{"CATALOG\tIMAGE\tSTATE", catalogs, []column{{"spec", "image"}, {"status", "connectionState", "lastObservedState"}}},
		{"SUBSCRIPTION\tPACKAGE\tCHANNEL\tINSTALLED\tSTATE", subscriptions, []column{
			{"spec", "name"}, {"spec", "channel"}, {"status", "installedCSV"}, {"status", "state"}}},
		{"OPERATOR\tVERSION\tPHASE\tREASON", csvs, []column{{"spec", "version"}, {"status", "phase"}, {"status", "reason"}}},
	} {
		// Copies show an operator in the namespaces that it serves; they say nothing new.
		items, err := o.objects.Resource(list.resource).List(ctx, metav1.ListOptions{LabelSelector: "!olm.copiedFrom"})
		if err != nil {
			return false, err
		}
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, list.title)
		for i := range items.Items {
			fmt.Fprintln(table, row(&items.Items[i], list.columns))
		}
		if err := table.Flush(); err != nil {
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

// column is the path of a field.
type column []string

// row is a line of a table: the object's namespace and name, and the fields, with a dash for one that is not set.
func row(object *unstructured.Unstructured, columns []column) string {
	line := object.GetNamespace() + "/" + object.GetName()
	for _, path := range columns {
		value, found, _ := unstructured.NestedString(object.Object, path...)
		if !found || value == "" {
			value = "-"
		}
		line += "\t" + value
	}
	return line
}
