package graph

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func at(after time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(noon.Add(after))) }

func stage(name aiplatformv1alpha1.StageName, dependsOn ...aiplatformv1alpha1.StageName) aiplatformv1alpha1.Stage {
	return aiplatformv1alpha1.Stage{Name: name, Agent: "agent-of-" + string(name), DependsOn: dependsOn}
}

// digest is a workflow with two ways that meet.
func digest() *aiplatformv1alpha1.AgentWorkflow {
	w := &aiplatformv1alpha1.AgentWorkflow{}
	w.Spec.Stages = []aiplatformv1alpha1.Stage{
		stage("read"), stage("summarize", "read"), stage("title", "summarize"), stage("check", "read"), stage("publish", "title", "check"),
		stage("clean"),
	}
	w.Spec.Stages[3].Condition = "inputs.strict == 'yes'"
	w.Status.Stages = []aiplatformv1alpha1.StageStatus{
		{Name: "read", Phase: "Succeeded", StartTime: at(0), CompletionTime: at(72 * time.Second), JobName: "digest-1-read-0a1b2c3d"},
		{Name: "summarize", Phase: "Running", StartTime: at(75 * time.Second), Message: "try 2"},
		{Name: "check", Phase: "Skipped", Message: "its condition\nis false"},
		{Name: "title", Phase: "Pending"},
		{Name: "publish", Phase: "Pending"},
		{Name: "clean", Phase: "Failed", StartTime: at(0), CompletionTime: at(1500 * time.Millisecond)},
	}
	return w
}

func TestDraw(t *testing.T) {
	want := []string{
		"✔ read           Succeeded in 1m12s",
		"├─ ▶ summarize   Running since 2030-01-02T12:01:15Z: try 2",
		"│  └─ ○ title    Pending",
		"└─ – check       Skipped: its condition is false",
		"   └─ ○ publish  Pending (also after title)",
		"✘ clean          Failed in 2s",
	}
	assert.Equal(t, want, Draw(digest()))
}

func TestDrawBeforeTheFirstStart(t *testing.T) {
	w := digest()
	w.Status = aiplatformv1alpha1.AgentWorkflowStatus{}
	assert.Equal(t, "○ read           Pending", Draw(w)[0])
	assert.Len(t, Draw(w), 6)
}

func TestADrawingStaysWithinItsBounds(t *testing.T) {
	w := &aiplatformv1alpha1.AgentWorkflow{}
	long := strings.Repeat("ü", 40)
	for i := range 70 {
		name := aiplatformv1alpha1.StageName(fmt.Sprintf("%s%d", long, i))
		s := stage(name)
		if i > 0 {
			s.DependsOn = []aiplatformv1alpha1.StageName{w.Spec.Stages[i-1].Name}
		}
		w.Spec.Stages = append(w.Spec.Stages, s)
		w.Status.Stages = append(w.Status.Stages, aiplatformv1alpha1.StageStatus{Name: name, Message: strings.Repeat("because ", 200)})
	}
	lines := Draw(w)
	assert.Len(t, lines, 64)
	assert.Equal(t, "… and 7 more", lines[63])
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), 512)
		assert.True(t, utf8.ValidString(line))
	}
}

func TestGraphAsData(t *testing.T) {
	text, err := json.Marshal(Of(digest()))
	require.NoError(t, err)
	var graph struct {
		Stages []map[string]any
		Edges  []map[string]string
	}
	require.NoError(t, json.Unmarshal(text, &graph))
	assert.Equal(t, map[string]any{
		"name": "read", "agent": "agent-of-read", "phase": "Succeeded", "job": "digest-1-read-0a1b2c3d",
		"start_time": "2030-01-02T12:00:00Z", "completion_time": "2030-01-02T12:01:12Z",
	}, graph.Stages[0])
	assert.Equal(t, "inputs.strict == 'yes'", graph.Stages[3]["condition"])
	assert.Equal(t, []map[string]string{
		{"from": "read", "to": "summarize"}, {"from": "summarize", "to": "title"}, {"from": "read", "to": "check"},
		{"from": "title", "to": "publish"}, {"from": "check", "to": "publish"},
	}, graph.Edges)
	text, err = json.Marshal(Of(&aiplatformv1alpha1.AgentWorkflow{}))
	require.NoError(t, err)
	assert.JSONEq(t, `{"stages": [], "edges": []}`, string(text))
}
