package manifest

import (
	"bytes"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

func TestTable(t *testing.T) {
	resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	thing := func(namespace, name string, labels map[string]any, status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing",
			"metadata": map[string]any{"namespace": namespace, "name": name, "labels": labels},
			"status":   status,
		}}
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "ThingList"},
		thing("a", "copy", map[string]any{"copied": "yes"}, nil),
		thing("a", "new", nil, map[string]any{}),
		thing("b", "old", nil, map[string]any{"phase": "Succeeded", "conditions": []any{
			map[string]any{"type": "Ready", "status": "True", "reason": "AllGood"},
		}}))
	var out bytes.Buffer
	table := Table{Title: "THING\tPHASE\tREADY", Resource: resource, Selector: "!copied", Columns: []Column{Field("status", "phase"), Condition("Ready")}}
	if err := table.Print(t.Context(), client, &out); err != nil {
		t.Fatal(err)
	}
	if want := "THING  PHASE      READY\na/new  -          -\nb/old  Succeeded  True (AllGood)\n"; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
