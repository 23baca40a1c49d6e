package graph

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Limits of a drawing, in lines and in bytes of a line. They are those of status.graph.
const (
	mostLines   = 64
	longestLine = 512
)

// marks are what a line begins with, by phase.
var marks = map[string]string{
	string(aiplatformv1alpha1.StagePending):   "○",
	string(aiplatformv1alpha1.StageRunning):   "▶",
	string(aiplatformv1alpha1.StageSucceeded): "✔",
	string(aiplatformv1alpha1.StageFailed):    "✘",
	string(aiplatformv1alpha1.StageSkipped):   "–",
}

// Draw draws the graph of a workflow in lines of text. Each stage has a line, under the last listed of the stages that it
// depends on; a line names the others. It tells when a stage that runs has started, and how long an ended one took, so that
// it does not change while nothing happens.
func Draw(workflow *aiplatformv1alpha1.AgentWorkflow) []string {
	graph := Of(workflow)
	var text strings.Builder
	d := drawing{
		parents: map[string]string{}, before: map[string][]string{}, children: map[string][]Stage{},
		out: tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0),
	}
	for _, edge := range graph.Edges {
		d.before[edge.To] = append(d.before[edge.To], edge.From)
	}
	for _, stage := range graph.Stages {
		parent := ""
		for _, listed := range graph.Stages {
			if slices.Contains(d.before[stage.Name], listed.Name) {
				parent = listed.Name // the last listed
			}
		}
		d.parents[stage.Name] = parent
		d.children[parent] = append(d.children[parent], stage)
	}
	for _, root := range d.children[""] {
		d.stage(root, "", "", "")
	}
	_ = d.out.Flush() // to memory it cannot fail
	lines := slices.Collect(strings.Lines(text.String()))
	if more := len(lines) - mostLines; more > 0 {
		lines = append(lines[:mostLines-1], fmt.Sprintf("… and %d more", more+1))
	}
	for i := range lines {
		lines[i] = cut(strings.TrimSuffix(lines[i], "\n"), longestLine)
	}
	return lines
}

type drawing struct {
	parents  map[string]string
	before   map[string][]string
	children map[string][]Stage
	// out takes the stages' lines: the branch and the name, which are padded to a column, and the rest.
	out *tabwriter.Writer
}

// stage draws a stage and those under it. The branch leads to it; trunk is what the lines of those under it begin with.
func (d *drawing) stage(stage Stage, trunk, branch, below string) {
	mark := marks[stage.Phase]
	after := slices.DeleteFunc(slices.Clone(d.before[stage.Name]), func(name string) bool { return name == d.parents[stage.Name] })
	right := stage.Phase + timesOf(stage)
	if len(after) > 0 {
		right += " (also after " + strings.Join(after, ", ") + ")"
	}
	if stage.Message != "" {
		right += ": " + oneLine(stage.Message)
	}
	_, _ = fmt.Fprintf(d.out, "%s%s%s %s\t%s\n", trunk, branch, mark, stage.Name, right)
	under := d.children[stage.Name]
	for i, child := range under {
		if i == len(under)-1 {
			d.stage(child, trunk+below, "└─ ", "   ")
		} else {
			d.stage(child, trunk+below, "├─ ", "│  ")
		}
	}
}

func timesOf(stage Stage) string {
	switch {
	case stage.StartTime == nil:
		return ""
	case stage.CompletionTime == nil:
		return " since " + stage.StartTime.Format(time.RFC3339)
	}
	return " in " + stage.CompletionTime.Sub(*stage.StartTime).Round(time.Second).String()
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cut shortens a text to so many bytes, between characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
