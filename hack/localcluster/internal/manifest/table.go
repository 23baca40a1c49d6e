package manifest

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Table prints a line for each object of a kind.
type Table struct {
	// Title is the head of the table, with tabs between the columns; the first column is the object's name.
	Title    string
	Resource schema.GroupVersionResource
	// Selector is a label selector; empty for all objects.
	Selector string
	// Columns follow the name.
	Columns []Column
}

// Column returns what to print of an object.
type Column func(*unstructured.Unstructured) string

// Field is the text at a path in the object, or a dash.
func Field(path ...string) Column {
	return func(object *unstructured.Unstructured) string {
		value, found, _ := unstructured.NestedString(object.Object, path...)
		if !found || value == "" {
			return "-"
		}
		return value
	}
}

// Condition is the status of the condition called kind and its reason, or a dash when the object has none.
func Condition(kind string) Column {
	return func(object *unstructured.Unstructured) string {
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, each := range conditions {
			if c, ok := each.(map[string]any); ok && c["type"] == kind {
				return fmt.Sprintf("%v (%v)", c["status"], c["reason"])
			}
		}
		return "-"
	}
}

// Print lists the objects of all namespaces.
func (t Table) Print(ctx context.Context, client dynamic.Interface, w io.Writer) error {
	items, err := client.Resource(t.Resource).List(ctx, metav1.ListOptions{LabelSelector: t.Selector})
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, t.Title)
	for i := range items.Items {
		object := &items.Items[i]
		line := object.GetName()
		if namespace := object.GetNamespace(); namespace != "" {
			line = namespace + "/" + line
		}
		for _, column := range t.Columns {
			line += "\t" + column(object)
		}
		fmt.Fprintln(out, line)
	}
	return out.Flush()
}
