package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// kind of an event in the history.
type kind string

// The kinds. Each is written by who saw it, right after it saw it.
const (
	accepted  kind = "accepted"   // a submission was acknowledged
	cancelled kind = "cancelled"  // a cancellation was acknowledged
	granted   kind = "granted"    // a worker got a lease, valid until Until
	extended  kind = "extended"   // a heartbeat was acknowledged, the lease is valid until Until
	finished  kind = "finished"   // a result was acknowledged
	givesBack kind = "gives back" // a failure is being told, and the worker relies on its lease no more
	gaveBack  kind = "gave back"  // a failure was acknowledged
	refused   kind = "refused"    // the lease was said to be lost
)

// event is what a client or worker saw. Its time is that of this machine, on which all of them run.
type event struct {
	At    time.Time `json:"at"`
	Kind  kind      `json:"kind"`
	Job   string    `json:"job"`
	Who   string    `json:"who,omitempty"`
	Fence int64     `json:"fence,omitempty"`
	Until time.Time `json:"until,omitzero"`
}

// journal is a file to which events are written at once, so that they outlive who wrote them.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

func openJournal(folder, who string) (*journal, error) {
	file, err := os.OpenFile(filepath.Join(folder, who+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &journal{file: file}, err
}

// write adds events, in one write.
func (j *journal) write(events ...event) {
	var lines []byte
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(lines); err != nil {
		panic(fmt.Sprintf("the history cannot be written: %v", err))
	}
}

// readJournals returns all events of a folder. The last line of a killed program may be cut: no other has seen it yet.
func readJournals(folder string) ([]event, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var events []event
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				events = append(events, e)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
		_ = file.Close()
	}
	return events, nil
}
