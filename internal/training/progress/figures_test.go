package progress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text string
		want Figures
	}{
		"nothing": {text: ""},
		"the whole contract": {
			text: `
# TYPE training_epoch gauge
training_epoch 2
training_epochs 10
training_progress_ratio 0.15
training_loss 0.4
training_accuracy 0.9
training_gpu_utilization_percent 87.5
training_metric{name="perplexity"} 12
training_metric{name="f1"} 0.8
training_checkpoint_info{path="/checkpoints/a/checkpoint-epoch-1"} 1
training_checkpoint_epoch 1
training_checkpoint_step 100
training_checkpoint_size_bytes 4096
training_checkpoint_timestamp_seconds 1893589200.75
`,
			want: Figures{
				Epoch: 2, Epochs: 10, Ratio: ptr.To(0.15), GPUUtilizationPercent: ptr.To(87.5),
				Metrics: map[string]float64{"loss": 0.4, "accuracy": 0.9, "perplexity": 12, "f1": 0.8},
				Checkpoint: &Checkpoint{
					Path: "/checkpoints/a/checkpoint-epoch-1", Epoch: 1, Step: 100, SizeBytes: 4096,
					Time: time.Date(2030, 1, 2, 13, 0, 0, 0, time.UTC),
				},
			},
		},
		"metrics are rounded to what can be read": {
			text: "training_loss 0.123456789\ntraining_metric{name=\"n\"} 123456789\n",
			want: Figures{Metrics: map[string]float64{"loss": 0.123457, "n": 123457000}},
		},
		"counters and gauges alike": {
			text: "# TYPE training_epoch counter\ntraining_epoch 3\n# TYPE training_loss gauge\ntraining_loss 1\n",
			want: Figures{Epoch: 3, Metrics: map[string]float64{"loss": 1}},
		},
		"what is not of the contract is passed over": {
			text: "process_cpu_seconds_total 12\ntraining_epoch 1\n", want: Figures{Epoch: 1},
		},
		"numbers that JSON cannot hold are passed over": {
			text: "training_loss NaN\ntraining_accuracy +Inf\ntraining_progress_ratio NaN\ntraining_metric{name=\"x\"} -Inf\ntraining_epoch NaN\n",
		},
		"a metric without a name is passed over": {text: "training_metric 1\ntraining_metric{other=\"a\"} 2\n"},
		"a checkpoint with only its path known": {
			text: "training_checkpoint_info{path=\"/c\"} 1\n", want: Figures{Checkpoint: &Checkpoint{Path: "/c"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(test.text))
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(test.want, got))
		})
	}
}

func TestParseRefusesWhatIsNoPrometheusText(t *testing.T) {
	_, err := Parse(strings.NewReader("<html>not found</html>\n"))
	assert.ErrorContains(t, err, "parse metrics as Prometheus text")
}

func TestAWorkerCannotFillTheStatus(t *testing.T) {
	var text strings.Builder
	object := []string{}
	for i := range 1000 {
		_, _ = fmt.Fprintf(&text, "training_metric{name=\"m%d\"} %d\n", i, i)
		object = append(object, fmt.Sprintf(`"m%d": %d`, i, i))
	}
	message := `{"training_loss": 1, "training_metrics": {` + strings.Join(object, ",") + `}}`

	scraped, err := Parse(strings.NewReader(text.String()))
	require.NoError(t, err)
	ended, ok := ParseTermination(message)
	require.True(t, ok)

	assert.Len(t, scraped.Metrics, maxMetrics)
	assert.Len(t, ended.Metrics, maxMetrics)
	for range 20 {
		again, _ := ParseTermination(message)
		require.True(t, ended.Equal(again), "the same message gives the same metrics each time it is read")
	}
}

func TestParseTermination(t *testing.T) {
	tests := map[string]struct {
		text string
		want Figures
		ok   bool
	}{
		"nothing":                  {text: ""},
		"log lines":                {text: "Traceback (most recent call last):\n  {"},
		"JSON that is cut off":     {text: `{"training_epoch": 1, "mess`},
		"JSON that is no object":   {text: `[1]`},
		"another object":           {text: `{"hello": "world"}`, ok: true},
		"a type that does not fit": {text: `{"training_epoch": "three"}`},
		"the whole contract": {
			text: "\n" + `{"training_epoch": 3, "training_epochs": 5, "training_progress_ratio": 0.6, "training_loss": 0.25,
				"training_accuracy": 0.96, "training_gpu_utilization_percent": 90, "training_metrics": {"f1": 0.7},
				"training_checkpoint_path": "/c/checkpoint-epoch-3", "training_checkpoint_epoch": 3, "training_checkpoint_step": 300,
				"training_checkpoint_size_bytes": 1e6, "training_checkpoint_timestamp_seconds": 1893589200.9,
				"reason": "TargetReached", "message": "accuracy 0.96"}` + "\n",
			want: Figures{
				Epoch: 3, Epochs: 5, Ratio: ptr.To(0.6), GPUUtilizationPercent: ptr.To(90.0),
				Metrics: map[string]float64{"loss": 0.25, "accuracy": 0.96, "f1": 0.7},
				Checkpoint: &Checkpoint{
					Path: "/c/checkpoint-epoch-3", Epoch: 3, Step: 300, SizeBytes: 1000000, Time: time.Date(2030, 1, 2, 13, 0, 0, 0, time.UTC),
				},
				Reason: "TargetReached", Message: "accuracy 0.96",
			},
			ok: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseTermination(test.text)
			assert.Equal(t, test.ok, ok)
			assert.Empty(t, cmp.Diff(test.want, got))
		})
	}
}

func TestEqual(t *testing.T) {
	full := func() Figures {
		return Figures{
			Epoch: 1, Epochs: 2, Ratio: ptr.To(0.5), GPUUtilizationPercent: ptr.To(9.0), Metrics: map[string]float64{"loss": 1},
			Checkpoint: &Checkpoint{Path: "/c", Time: time.Unix(1, 0).UTC()}, Reason: "r", Message: "m",
		}
	}
	assert.True(t, full().Equal(full()))
	var none, other Figures
	assert.True(t, none.Equal(other))
	for name, change := range map[string]func(*Figures){
		"epoch":                func(f *Figures) { f.Epoch++ },
		"epochs":               func(f *Figures) { f.Epochs++ },
		"ratio":                func(f *Figures) { f.Ratio = ptr.To(0.6) },
		"ratio is gone":        func(f *Figures) { f.Ratio = nil },
		"utilization":          func(f *Figures) { f.GPUUtilizationPercent = nil },
		"a metric":             func(f *Figures) { f.Metrics["loss"] = 2 },
		"one more metric":      func(f *Figures) { f.Metrics["accuracy"] = 2 },
		"checkpoint":           func(f *Figures) { f.Checkpoint.Path = "/d" },
		"time of a checkpoint": func(f *Figures) { f.Checkpoint.Time = time.Unix(2, 0).UTC() },
		"checkpoint is gone":   func(f *Figures) { f.Checkpoint = nil },
		"reason":               func(f *Figures) { f.Reason = "" },
		"message":              func(f *Figures) { f.Message = "" },
	} {
		other := full()
		change(&other)
		assert.False(t, full().Equal(other), name)
		assert.False(t, other.Equal(full()), name)
	}
}
