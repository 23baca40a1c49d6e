package review

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMissingInWords(t *testing.T) {
	r := Reference{Field: "spec.env[0].valueFrom.configMapKeyRef", Kind: ConfigMap, Namespace: "ml", Name: "settings", Key: "a", Until: "the workers cannot start"}
	assert.Equal(t, `spec.env[0].valueFrom.configMapKeyRef: there is no ConfigMap "settings" in namespace ml: create it or correct the name; until then the workers cannot start`,
		Missing{Reference: r}.String())
	assert.Equal(t, `spec.env[0].valueFrom.configMapKeyRef: ConfigMap "settings" in namespace ml has no key "a": add it or correct the key; until then the workers cannot start`,
		Missing{Reference: r, KeyOnly: true}.String())
	priority := Reference{Field: "spec.scheduling.priority", Kind: PriorityClass, Name: "high", Until: "the API server refuses the workers' pods"}
	assert.Equal(t, `spec.scheduling.priority: there is no PriorityClass "high": create it or correct the name; until then the API server refuses the workers' pods`,
		Missing{Reference: priority}.String())
}

func TestWarningsAreBounded(t *testing.T) {
	got := Warn(make([]string, 30), []string{"a", "b"}).Warnings
	assert.Len(t, got, MostWarnings)
	assert.Equal(t, "and 12 more", got[MostWarnings-1])
}
