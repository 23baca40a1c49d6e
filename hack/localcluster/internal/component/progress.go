package component

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// tick is how often a long step reports its progress.
const tick = 20 * time.Second

// progress reports a run of the go command, whose standard error it receives.
type progress struct {
	out        io.Writer
	what       string
	usual      time.Duration
	begin      time.Time
	downloaded atomic.Int32
	done       chan struct{}
}

// startProgress prints a line about the step every tick until Stop. usual is how long the step takes; zero when unknown.
func startProgress(out io.Writer, what string, usual time.Duration) *progress {
	p := &progress{out: out, what: what, usual: usual, begin: time.Now(), done: make(chan struct{})}
	go func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-p.done:
				return
			case now := <-ticker.C:
				fmt.Fprintln(p.out, p.line(now))
			}
		}
	}()
	return p
}

// Stop ends the reports.
func (p *progress) Stop() { close(p.done) }

// Write counts the modules that the go command downloads: it names those that a build needs, and with -x each request.
func (p *progress) Write(text []byte) (int, error) {
	p.downloaded.Add(int32(bytes.Count(text, []byte("go: downloading ")) + bytes.Count(text, []byte(".zip: 200"))))
	return len(text), nil
}

func (p *progress) line(now time.Time) string {
	line := fmt.Sprintf("%s: %s so far%s", p.what, short(now.Sub(p.begin)), usually(", usually %s", p.usual))
	if n := p.downloaded.Load(); n > 0 {
		line += fmt.Sprintf(", %d modules downloaded", n)
	}
	return line
}

// usually formats how long a step usually takes; empty when that is unknown.
func usually(format string, duration time.Duration) string {
	if duration == 0 {
		return ""
	}
	return fmt.Sprintf(format, short(duration))
}

// short writes a duration as 1m20s, or 6m.
func short(duration time.Duration) string {
	return strings.Replace(duration.Round(time.Second).String(), "m0s", "m", 1)
}
