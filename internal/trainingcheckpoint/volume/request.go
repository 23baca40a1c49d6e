package volume

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Files by which a checkpoint is asked for, in the job's directory (docs/worker-contract.md).
const (
	requestFile = "checkpoint.request"
	answerFile  = "checkpoint.request.done"
)

// MaxRequestID is the most bytes that the id of a request may have.
const MaxRequestID = 256

// Answer is what the training has answered to the last request.
type Answer struct {
	ID string `json:"id"`
	// Checkpoint is the name of the checkpoint that was taken, empty when that failed.
	Checkpoint string `json:"checkpoint"`
	Error      string `json:"error"`
}

// Request asks the training for a checkpoint now.
func (d Directory) Request(id string) error {
	if err := d.Create(); err != nil {
		return err
	}
	return WriteFile(d.Path, requestFile, []byte(id+"\n"))
}

// Requested is the id of the request that the training has not answered yet; empty when there is none.
func (d Directory) Requested() (string, error) {
	text, err := os.ReadFile(d.Join(requestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line), err
}

// Answered is the training's last answer; false when there is none.
func (d Directory) Answered() (Answer, bool) {
	text, err := os.ReadFile(d.Join(answerFile))
	if err != nil {
		return Answer{}, false
	}
	var a Answer
	return a, json.Unmarshal(text, &a) == nil && a.ID != ""
}
