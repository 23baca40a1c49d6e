package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// loggedError is an error that a manager logged: when, what was said, and about what object.
type loggedError struct {
	at   time.Time
	what string
}

// errorsLogged are all of the managers until now.
func (w *world) errorsLogged() (all []loggedError) {
	files, _ := filepath.Glob(filepath.Join(w.folder, "manager*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			w.note("%v", err)
		}
		all = append(all, errorsIn(string(text))...)
	}
	return all
}

// figuresInText are other ones each time, as a resource version is.
var figuresInText = regexp.MustCompile(`[0-9]+`)

func errorsIn(log string) (all []loggedError) {
	for line := range strings.Lines(log) {
		var entry struct {
			Time                                                time.Time
			Level, Msg, Err, Error, Controller, Namespace, Name string
		}
		if json.Unmarshal([]byte(line), &entry) != nil || !strings.EqualFold(entry.Level, "error") {
			continue
		}
		all = append(all, loggedError{entry.Time, fmt.Sprintf("%s %s/%s: %s: %s", entry.Controller, entry.Namespace, entry.Name, entry.Msg,
			figuresInText.ReplaceAllString(entry.Err+entry.Error, "#"))})
	}
	return all
}

// forever are the errors that are logged in both of two windows, with no growing pauses between them.
func forever(all []loggedError, from, middle, to time.Time) (repeated []string) {
	times := map[string][]time.Time{}
	for _, one := range all {
		if one.at.Before(to) {
			times[one.what] = append(times[one.what], one.at)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(times)) {
		at := times[what]
		slices.SortFunc(at, time.Time.Compare)
		first, _ := slices.BinarySearchFunc(at, from, time.Time.Compare)
		second, _ := slices.BinarySearchFunc(at, middle, time.Time.Compare)
		if first == second || second == len(at) {
			continue
		}
		var pauses []time.Duration // the one that led into the first window too
		for i := max(first, 1); i < len(at); i++ {
			pauses = append(pauses, at[i].Sub(at[i-1]))
		}
		if len(pauses) > 1 && !grow(pauses) {
			repeated = append(repeated, fmt.Sprintf("%s (%d times, then %d times)", what, second-first, len(at)-second))
		}
	}
	return repeated
}

// grow says whether the last pause is longer than those before it, as far as a few of them can tell.
func grow(pauses []time.Duration) bool {
	last := len(pauses) - 1
	var sum time.Duration
	for _, pause := range pauses[:last] {
		sum += pause
	}
	return pauses[last]*2 > sum/time.Duration(last)*3
}

func TestAnErrorIsForeverWhenItsPausesDoNotGrow(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, test := range map[string]struct {
		after   []int // seconds; the windows are 60 to 120 and 120 to 180
		forever bool
	}{
		"none":                    {nil, false},
		"before the windows":      {[]int{1, 2, 3, 50}, false},
		"in the first only":       {[]int{61, 62, 63, 64}, false},
		"in the second only":      {[]int{121, 122, 123}, false},
		"each second":             {[]int{60, 61, 62, 63, 64, 119, 120, 121, 122}, true},
		"each fifty seconds":      {[]int{20, 70, 120, 170}, true},
		"with pauses that differ": {[]int{61, 72, 80, 93, 101, 111, 122, 131, 145, 154, 163, 175}, true},
		"with pauses that double": {[]int{1, 3, 7, 15, 31, 63, 127}, false},
		"and double fast":         {[]int{60, 61, 63, 67, 75, 91, 123}, false},
		"twice, which tells no":   {[]int{61, 121}, false},
		"after the windows":       {[]int{100, 200, 300}, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := []loggedError{{began.Add(90 * time.Second), "another"}}
			for _, after := range test.after {
				all = append(all, loggedError{began.Add(time.Duration(after) * time.Second), "it"})
			}
			found := forever(all, began.Add(time.Minute), began.Add(2*time.Minute), began.Add(3*time.Minute))
			assert.Equal(t, test.forever, len(found) > 0, found)
		})
	}
}

func TestErrorsAreToldByTheirObject(t *testing.T) {
	log := `{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"Started"}
not JSON
{"time":"2026-01-02T03:04:06Z","level":"ERROR","msg":"Reconciler error","controller":"agent","namespace":"team","name":"a","err":"version 17 is old"}
{"time":"2026-01-02T03:04:07Z","level":"ERROR","msg":"Reconciler error","controller":"agent","namespace":"team","name":"b","err":"version 18 is old"}
`
	at := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	assert.Equal(t, []loggedError{
		{at, "agent team/a: Reconciler error: version # is old"}, {at.Add(time.Second), "agent team/b: Reconciler error: version # is old"},
	}, errorsIn(log))
}
