package sidecar

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// maxSkipped is how many damaged checkpoints a report names.
const maxSkipped = 5

// status is the agent's report, which the server reads while the agent works.
type status struct {
	mu     sync.Mutex
	report report.Report
	// leaving is the file of the termination message, once every change is left there.
	leaving string
	// sending are the checkpoints that are not in the storage yet, the newest first.
	sending []string
}

func newStatus(phase report.Phase) *status { return &status{report: report.Report{Phase: phase}} }

func (s *status) change(f func(r *report.Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.report)
	s.report.Skipped = s.report.Skipped[:min(len(s.report.Skipped), maxSkipped)]
	if s.leaving != "" {
		_ = s.write(s.leaving) // that it cannot be written was said when the first one could not
	}
}

// send notes which checkpoints are to be sent.
func (s *status) send(names []string) { s.change(func(*report.Report) { s.sending = names }) }

// snapshot is the report as it is now. What it refers to is replaced by changes, and never written into.
func (s *status) snapshot() report.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.report
}

// problem sets what keeps the agent from its work, nil for nothing, and says whether that changed. The time since when
// it is so stays while the reason does.
func (s *status) problem(e *report.Problem, now time.Time) (changed bool) {
	s.change(func(r *report.Report) {
		before := r.Problem
		r.Problem = nil
		if e != nil {
			r.Problem = &report.Problem{Reason: e.Reason, Message: report.Cut(e.Message, 1000), Since: now.UTC().Truncate(time.Second)}
			if before != nil && before.Reason == e.Reason {
				r.Problem.Since = before.Since
			}
		}
		changed = !ptr.Equal(before, r.Problem)
	})
	return changed
}

// leave writes the report as termination message. The kubelet reads it when the container has ended, however that was.
func (s *status) leave(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(path)
}

// leaveEveryChange writes the report as termination message now and whenever it changes: a container that is killed at the end
// of its grace period has no time left to write one.
func (s *status) leaveEveryChange(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = path
	return s.write(path)
}

func (s *status) write(path string) error {
	if path == "" {
		return nil
	}
	last := s.report
	if n := len(s.sending); n > 0 && last.Problem == nil && last.Phase != report.PhaseDone {
		what := s.sending[0]
		if n > 1 {
			what += fmt.Sprintf(" and %d more", n-1)
		}
		last.Problem = &report.Problem{Reason: report.ReasonCheckpointNotStored, Since: time.Now().UTC().Truncate(time.Second), Message: what +
			" had not reached the storage when the pod was stopped and its grace period ended: see to a faster way to the storage, or to smaller checkpoints"}
	}
	return os.WriteFile(path, Message(last), 0o644) //nolint:gosec // the kubelet reads it, and other users of the pod may
}

// Message is a report as termination message, which has room for report.MaxTerminationBytes. What is least needed is
// left out first.
func Message(r report.Report) []byte {
	r.Skipped = slices.Clone(r.Skipped)
	var steps []func()
	for _, most := range []int{1000, 300, 100} {
		steps = append(steps, func() {
			for i := range r.Skipped {
				r.Skipped[i].Message = report.Cut(r.Skipped[i].Message, most)
			}
		})
	}
	for range r.Skipped {
		steps = append(steps, func() { r.Skipped = r.Skipped[:len(r.Skipped)-1] })
	}
	steps = append(steps, func() {
		if r.Problem != nil {
			r.Problem = new(*r.Problem)
			r.Problem.Message = report.Cut(r.Problem.Message, 400)
		}
		if r.Request != nil {
			r.Request = new(*r.Request)
			r.Request.Message = report.Cut(r.Request.Message, 200)
		}
	}, func() { r.Restored, r.Request = nil, nil })
	var text []byte
	for _, step := range steps {
		step()
		if text = encode(r); len(text) <= report.MaxTerminationBytes {
			break
		}
	}
	return text
}

func encode(r report.Report) []byte {
	text, err := json.Marshal(r)
	if err != nil { // there is nothing in a report that JSON has no form for
		panic(err)
	}
	return text
}
