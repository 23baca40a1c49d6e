package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	tableBegin = "<!-- The table is generated from the comments in values.yaml: run make chart. -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

// writeValuesTable puts a table of all values into the chart's README.
func writeValuesTable(readme, values string) error {
	table, err := valuesTable(values)
	if err != nil {
		return fmt.Errorf("%s: %w", values, err)
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(text), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		return fmt.Errorf("%s: has no place for the table of values between the lines\n%s%s", readme, tableBegin, tableEnd)
	}
	return os.WriteFile(readme, []byte(before+tableBegin+"\n"+table+"\n"+tableEnd+after), 0o644)
}

// valueLine is a line that begins a value or a group of values.
var valueLine = regexp.MustCompile(`^( *)([A-Za-z]+):(?: (.*))?$`)

// valuesTable is made of the values that have a comment right above them. A value without one that belongs to none that
// has is an error.
func valuesTable(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return "", err
	}
	table := "| value | default | meaning |\n|---|---|---|\n"
	var path, comment []string
	documented := "" // the last path that has a row, with a dot at its end
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if remark, ok := strings.CutPrefix(strings.TrimSpace(line), "# "); ok {
			comment = append(comment, remark)
			continue
		}
		found := valueLine.FindStringSubmatch(line)
		if found == nil {
			comment = nil
			continue
		}
		path = append(path[:len(found[1])/2], found[2])
		name := strings.Join(path, ".")
		switch {
		case documented != "" && strings.HasPrefix(name, documented):
		case len(comment) > 0:
			preset, _, err := unstructured.NestedFieldNoCopy(values, path...)
			if err != nil {
				return "", err
			}
			row, err := tableRow(name, preset, strings.Join(comment, " "))
			if err != nil {
				return "", err
			}
			table, documented = table+row, name+"."
		case found[3] != "":
			return "", fmt.Errorf("%s has no comment: say above it what it means", name)
		}
		comment = nil
	}
	return table, nil
}

func tableRow(name string, preset any, meaning string) (string, error) {
	text, err := json.Marshal(preset)
	if err != nil {
		return "", err
	}
	return "| `" + name + "` | `" + string(text) + "` | " + strings.ReplaceAll(meaning, "|", `\|`) + " |\n", nil
}
