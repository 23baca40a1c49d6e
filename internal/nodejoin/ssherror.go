package nodejoin

import (
	"fmt"
	"strings"
	"sync"
)

// Stage says how far OverSSH came.
type Stage string

// The stages.
const (
	// StageConnect: the address does not answer, or the connection broke.
	StageConnect Stage = "Connect"
	// StageHostKey: who answers is not known to be the instance.
	StageHostKey Stage = "HostKey"
	// StageLogin: the instance does not let the operator in.
	StageLogin Stage = "Login"
	// StageCommand: the instance did not join.
	StageCommand Stage = "Command"
)

// SSHError says why an instance could not be joined over SSH.
type SSHError struct {
	Stage         Stage
	User, Address string
	// Output are the last lines that the instance printed, without the token.
	Output string
	Err    error
}

func (s SSH) failed(stage Stage, err error) *SSHError {
	return &SSHError{Stage: stage, User: s.User, Address: s.Address, Err: err}
}

// Error has the remedy where there is one that is always right.
func (e *SSHError) Error() string {
	text := fmt.Sprintf("SSH to %s: %v", e.Address, e.Err)
	switch e.Stage {
	case StageConnect:
		return text + " (is the instance up, and do firewall rules let the operator reach this port?)"
	case StageLogin:
		return fmt.Sprintf("%s (does the guest agent of the image make user %s from the metadata ssh-keys?)", text, e.User)
	case StageCommand:
		if e.Output != "" {
			return fmt.Sprintf("%s; the end of its output:\n%s", text, e.Output)
		}
	}
	return text
}

func (e *SSHError) Unwrap() error { return e.Err }

// tail keeps the end of what is written to it.
type tail struct {
	mutex sync.Mutex
	text  []byte
}

// The end of an output that is shown to people.
const (
	tailBytes = 4096
	tailLines = 20
)

func (t *tail) Write(p []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*tailBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-tailBytes:]...)
	}
	return len(p), nil
}

// without returns the last lines with a secret blacked out.
func (t *tail) without(secret string) string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	text := strings.TrimSpace(strings.ReplaceAll(string(t.text), secret, "[redacted]"))
	text = text[max(0, len(text)-tailBytes):]
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
