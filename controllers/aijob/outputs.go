package aijob

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mostOutputs is how many the API takes.
const mostOutputs = 64

// outputsOf are what the members reported in their termination messages: what member 0 did, else the first that did.
func outputsOf(members []*corev1.Pod) map[string]string {
	for _, pod := range members {
		if pod == nil {
			continue
		}
		if ended := program.Terminated(pod); ended != nil {
			if outputs := parseOutputs(ended.Message); len(outputs) > 0 {
				return outputs
			}
		}
	}
	return nil
}

// parseOutputs reads a JSON object. Values that are no strings stay JSON. Nil when the text is no object.
func parseOutputs(text string) map[string]string {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") {
		return nil
	}
	var values map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &values) != nil {
		return nil
	}
	outputs := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(outputs) == mostOutputs {
			break
		}
		var value string
		if json.Unmarshal(values[name], &value) == nil && !bytes.Equal(values[name], []byte("null")) {
			outputs[name] = value
			continue
		}
		var compact bytes.Buffer
		if json.Compact(&compact, values[name]) == nil {
			outputs[name] = compact.String()
		}
	}
	return outputs
}
