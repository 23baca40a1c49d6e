package replicas

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Kinds of events.
const (
	accepted  = "accepted"  // the submission of a job was acknowledged
	leased    = "leased"    // a worker got a lease until Until
	kept      = "kept"      // a heartbeat keeps it until Until
	left      = "left"      // the worker stopped: it says how the job ended, or gives it up
	completed = "completed" // that it succeeded was acknowledged
	failed    = "failed"    // that it failed for good was acknowledged
	cancelled = "cancelled" // its cancellation was acknowledged
)

// event is one line of a history. Times are those of this machine's clock, in microseconds.
type event struct {
	Kind  string `json:"kind"`
	Job   string `json:"job"`
	Fence int64  `json:"fence,omitempty"`
	At    int64  `json:"at"`
	Until int64  `json:"until,omitempty"`
}

// recorder appends to a file, each event with one write, so that a kill loses none that was told of before.
type recorder struct{ file *os.File }

func newRecorder(folder, name string) (*recorder, error) {
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &recorder{file: file}, err
}

func (r *recorder) note(kind, job string, fence int64, until time.Time) {
	e := event{Kind: kind, Job: job, Fence: fence, At: time.Now().UnixMicro()}
	if !until.IsZero() {
		e.Until = until.UnixMicro()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // without its history a run proves nothing
	}
}

func readHistory(folder string) ([]event, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return nil, err
	}
	var all []event
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, e)
		}
		_ = file.Close()
	}
	return all, nil
}
