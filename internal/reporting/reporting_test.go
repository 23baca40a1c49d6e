package reporting_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/internal/reporting"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

func TestPacerSpacesWrites(t *testing.T) {
	var p reporting.Pacer
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	assert.Zero(t, p.Wait(key, time.Minute, noon), "the first write need not wait")
	assert.Equal(t, noon, p.Seen(key, noon))
	p.Wrote(key, noon)
	assert.Equal(t, 50*time.Second, p.Wait(key, time.Minute, noon.Add(10*time.Second)))
	assert.Zero(t, p.Wait(key, time.Minute, noon.Add(time.Minute)))
	assert.Equal(t, noon, p.Seen(key, noon.Add(time.Hour)))
	assert.Equal(t, noon, p.Last(key))
	p.Forget(key)
	assert.Zero(t, p.Last(key))
	assert.Equal(t, noon.Add(time.Hour), p.Seen(key, noon.Add(time.Hour)))
}

func TestPacerHoldsAChangeForOthers(t *testing.T) {
	var p reporting.Pacer
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	p.Wrote(key, noon.Add(-time.Hour))
	assert.Equal(t, 5*time.Second, p.Hold(key, 5*time.Second, noon), "however long ago the last was written")
	assert.Equal(t, time.Second, p.Hold(key, 5*time.Second, noon.Add(4*time.Second)), "from the first one on")
	assert.Zero(t, p.Hold(key, 5*time.Second, noon.Add(5*time.Second)))
	p.Wrote(key, noon.Add(5*time.Second))
	assert.Equal(t, 5*time.Second, p.Hold(key, 5*time.Second, noon.Add(6*time.Second)))
	p.Release(key)
	assert.Equal(t, 5*time.Second, p.Hold(key, 5*time.Second, noon.Add(8*time.Second)), "the change before was taken back")
}

func TestSetKeepsTheTimeOfAConditionThatStays(t *testing.T) {
	var list []metav1.Condition
	reporting.Set(&list, 1, noon, "Ready", metav1.ConditionTrue, "Ready", "")
	reporting.Set(&list, 2, noon.Add(time.Hour), "Ready", metav1.ConditionTrue, "Other", string(make([]byte, 40000)))
	assert.Equal(t, noon, list[0].LastTransitionTime.UTC())
	assert.EqualValues(t, 2, list[0].ObservedGeneration)
	assert.Len(t, list[0].Message, 32768)
	assert.Equal(t, "Other", reporting.Reason(list, "Ready"))
	assert.Empty(t, reporting.Message(list, "Failed"))
}

func TestTellLogsEachTransitionOnce(t *testing.T) {
	conditions := func(status metav1.ConditionStatus, message string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: "R", Message: message}}
	}
	for name, test := range map[string]struct {
		transition reporting.Transition
		events     []reporting.Event
		want       []string
		emitted    int
	}{
		"an event": {
			reporting.Transition{From: "Pending", To: "Running"}, []reporting.Event{reporting.Normal("Started", "Start", "%d pods run", 2)},
			[]string{`"level"=0 "msg"="Started" "from"="Pending" "to"="Running" "message"="2 pods run"`}, 1,
		},
		"an event without a change of the phase": {
			reporting.Transition{From: "Running", To: "Running"}, []reporting.Event{reporting.Warning("Slow", "Watch", "100% late")},
			[]string{`"level"=0 "msg"="Slow" "message"="100% late"`}, 1,
		},
		"a condition": {
			reporting.Transition{Before: conditions("False", ""), After: conditions("True", "works")}, nil,
			[]string{`"level"=0 "msg"="Status changed" "conditionReady"="True (R: works)"`}, 0,
		},
		"figures": {
			reporting.Transition{Before: conditions("True", "1"), After: conditions("True", "2")}, nil,
			[]string{`"level"=1 "msg"="Wrote status"`}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1})
			recorder := events.NewFakeRecorder(10)
			reporting.Tell(log.IntoContext(context.Background(), logger), recorder, &corev1.Pod{}, test.transition, test.events...)
			assert.Equal(t, test.want, lines)
			assert.Len(t, recorder.Events, test.emitted)
		})
	}
}
