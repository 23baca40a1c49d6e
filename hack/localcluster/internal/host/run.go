package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Run runs a program of the system. The error has its output.
func Run(ctx context.Context, program string, args ...string) error {
	return RunWith(ctx, nil, program, args...)
}

// RunWith runs a program of the system with an input.
func RunWith(ctx context.Context, input io.Reader, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Stdin = input
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(output))
	}
	return nil
}

// Output runs a command and returns what it printed, also when it fails. What it complained of is part of the error.
func Output(command *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), err
}

// Tail returns the last n lines of text.
func Tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
