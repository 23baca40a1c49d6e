package podend

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// How much is repeated of what a program says at its end, in characters.
const (
	longestLine   = 300
	longestOutput = 2048
)

// namesError is how a line begins that names an error, as the last line of a Python traceback does. torchrun puts the rank in front.
var namesError = regexp.MustCompile(`^(?:\[[^\]]*\]:?\s*)*(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b|(?i:panic|fatal|error)\b)`)

// ofTorchrun ends what torchrun says of a child that failed, whose own error stands before it.
const ofTorchrun = "ChildFailedError:"

// WhatFailed is the line of a program's last output that says what failed: the last one that names an error, else the last one. It has no
// secrets in it, neither those that are known nor what has the form of one, and is cut to 300 characters.
func WhatFailed(output string, secrets ...string) string {
	var last, failed string
	for line := range strings.Lines(redact.Text(output, secrets...)) {
		if line = strings.Join(strings.Fields(line), " "); line == "" {
			continue
		}
		last = line
		if namesError.MatchString(line) && !strings.HasSuffix(line, ofTorchrun) {
			failed = line
		}
	}
	if failed == "" {
		failed = last
	}
	if runes := []rune(failed); len(runes) > longestLine {
		failed = string(runes[:longestLine-3]) + "..."
	}
	return failed
}

// lastOutput is the end of a program's last output, without secrets.
func lastOutput(output string, secrets []string) string {
	output = strings.TrimSpace(redact.Text(output, secrets...))
	if runes := []rune(output); len(runes) > longestOutput {
		output = "..." + string(runes[len(runes)-longestOutput+3:])
	}
	return output
}

// lastWords is what a program said at its end.
func (p *Program) lastWords(ended *corev1.ContainerStateTerminated) string {
	if p.LastWords != nil {
		return p.LastWords(ended.Message)
	}
	return ended.Message
}
