package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	defaultTail = 100
	maxTail     = 10_000
	// writeTimeout is how long a client may take to read a part of a stream.
	writeTimeout = 30 * time.Second
	maxLine      = 1 << 20
)

func (s *service) jobLogs(c *call) error {
	q := c.query("follow", "tail", "timestamps")
	options := LogOptions{
		Follow: q.boolean("follow", false), Tail: q.integer("tail", defaultTail, 0, maxTail), Timestamps: q.boolean("timestamps", true),
	}
	if err := q.problem("the query is wrong"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	// A server that shuts down does not wait for the end of the job.
	defer context.AfterFunc(s.Context, cancel)()
	if !options.Follow {
		ctx, cancel = context.WithTimeout(ctx, answerTimeout)
		defer cancel()
	}
	job, err := c.readable()
	if err != nil {
		return err
	}
	if c.Method == http.MethodHead {
		options.Follow, options.Tail = false, 0
	}
	if options.Follow {
		if !s.streams.begin(c.user()) {
			return tooManyStreams()
		}
		defer s.streams.end(c.user())
	}
	var lines io.ReadCloser
	if s.Kubernetes != nil && job.Executor == jobs.Kubernetes {
		lines, err = s.Kubernetes.Logs(ctx, job, options)
	} else {
		lines = s.history(ctx, job, options)
	}
	if err != nil {
		return err
	}
	defer lines.Close()
	if options.Follow {
		return c.streamEvents(ctx, lines, job.ID)
	}
	return c.copyText(lines)
}

func (c *call) copyText(lines io.Reader) error {
	header := c.w.Header()
	header["Content-Type"] = []string{"text/plain; charset=utf-8"}
	controller := http.NewResponseController(c.w)
	part := make([]byte, 32<<10)
	for {
		n, err := lines.Read(part)
		if n > 0 {
			if c.status == 0 {
				c.status = http.StatusOK
				c.w.WriteHeader(c.status)
			}
			_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // The server's own limit holds otherwise.
			if _, err := c.w.Write(part[:n]); err != nil {
				return nil // The client has gone.
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if c.status == 0 {
				c.status = http.StatusOK
				c.w.WriteHeader(c.status)
			}
			return nil
		case err != nil && c.status == 0:
			return err
		case err != nil:
			// The answer has begun: that it is not whole can only be said by breaking it off.
			panic(http.ErrAbortHandler)
		}
	}
}

// streamEvents sends each line as an event, and at the end one of the type end with the status of the job.
func (c *call) streamEvents(ctx context.Context, lines io.ReadCloser, id string) error {
	header := c.w.Header()
	header["Content-Type"] = []string{"text/event-stream"}
	header["X-Accel-Buffering"] = []string{"no"}
	c.status = http.StatusOK
	c.w.WriteHeader(c.status)
	controller := http.NewResponseController(c.w)
	send := func(text ...[]byte) bool {
		_ = controller.SetWriteDeadline(time.Now().Add(writeTimeout)) // The server's own limit holds otherwise.
		if _, err := c.w.Write(bytes.Join(text, nil)); err != nil {
			return false
		}
		return controller.Flush() == nil
	}
	if !send() {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A read that blocks ends when the client disconnects.
	defer context.AfterFunc(ctx, func() { _ = lines.Close() })()
	next, failed := readLines(ctx, lines)
	end := func(job *jobs.Job) {
		send([]byte(`event: end`+"\n"+`data: {"status":"`), []byte(job.Status), []byte(`"}`+"\n\n"))
	}
	tick := time.NewTicker(c.service.KeepAlive)
	defer tick.Stop()
	quiet := true
	for {
		select {
		case <-tick.C:
			// The log of a job that ended before it had anything in the cluster has no end of its own.
			if quiet {
				if job, err := c.service.Store.Get(ctx, id); err == nil && job.Status.Ended() {
					end(&job)
					return nil
				}
			}
			quiet = true
			if !send([]byte(": still there\n\n")) {
				return nil
			}
		case line, ok := <-next:
			quiet = false
			if ok {
				if !send([]byte("data: "), line, []byte("\n\n")) {
					return nil
				}
				continue
			}
			if err := <-failed; err != nil && ctx.Err() == nil {
				c.service.Log.Error(err, "Cannot read a log to its end", "requestID", c.id, "job", id)
				send([]byte("event: error\ndata: {\"code\":\"" + codeUnavailable + "\",\"message\":\"the log broke off: follow it again\"}\n\n"))
				return nil
			}
			// A stream that ends because the server does has not come to the end of the job.
			if job, err := c.service.Store.Get(ctx, id); err == nil && ctx.Err() == nil {
				end(&job)
			}
			return nil
		}
	}
}

// readLines reads lines until the end; then the second channel has the error.
func readLines(ctx context.Context, from io.Reader) (<-chan []byte, <-chan error) {
	next, failed := make(chan []byte), make(chan error, 1)
	go func() {
		defer close(failed)
		defer close(next)
		scanner := bufio.NewScanner(from)
		scanner.Buffer(make([]byte, 0, 4096), maxLine)
		for scanner.Scan() {
			// A carriage return would end the line of the event, too.
			line := bytes.ReplaceAll(bytes.Clone(scanner.Bytes()), []byte{'\r'}, []byte{' '})
			select {
			case next <- line:
			case <-ctx.Done():
				return
			}
		}
		failed <- scanner.Err()
	}()
	return next, failed
}

// history is the log of a job without pods: its states, and what its workers said.
func (s *service) history(ctx context.Context, job jobs.Job, options LogOptions) io.ReadCloser {
	lines := historyOf(&job)
	if len(lines) > options.Tail {
		lines = lines[len(lines)-options.Tail:]
	}
	var first strings.Builder
	told := map[string]bool{}
	for _, line := range historyOf(&job) {
		told[line.key()] = true
	}
	for _, line := range lines {
		first.WriteString(line.print(options.Timestamps))
	}
	if !options.Follow || job.Status.Ended() {
		return io.NopCloser(strings.NewReader(first.String()))
	}
	reader, writer := io.Pipe()
	go func() {
		_, err := io.WriteString(writer, first.String())
		for err == nil && !job.Status.Ended() {
			select {
			case <-ctx.Done():
				err = ctx.Err()
				continue
			case <-time.After(s.LogInterval):
			}
			if job, err = s.Store.Get(ctx, job.ID); err != nil {
				break
			}
			for _, line := range historyOf(&job) {
				if !told[line.key()] && err == nil {
					told[line.key()] = true
					_, err = io.WriteString(writer, line.print(options.Timestamps))
				}
			}
		}
		_ = writer.CloseWithError(err) // It never fails.
	}()
	return reader
}

// historyLine is something that became of a job.
type historyLine struct {
	at   time.Time
	text string
}

func (l historyLine) key() string { return l.print(true) }

func (l historyLine) print(timestamps bool) string {
	text := strings.ReplaceAll(strings.TrimRight(l.text, "\n"), "\n", "\n  ") + "\n"
	if timestamps {
		return l.at.UTC().Format("2006-01-02T15:04:05.000000Z") + " " + text
	}
	return text
}

func historyOf(job *jobs.Job) []historyLine {
	lines := []historyLine{{job.CreatedAt, "submitted by " + job.Submitter + " to queue " + job.Queue}}
	if !job.StartedAt.IsZero() {
		text := "started"
		if job.WorkerID != "" {
			text += " by worker " + job.WorkerID
		}
		lines = append(lines, historyLine{job.StartedAt, text})
	}
	if job.Status == jobs.Retrying && job.Error != "" {
		lines = append(lines, historyLine{job.NextRetryAt, "waits until then to be tried again, because it failed: " + job.Error})
	}
	if job.Status.Ended() {
		text := "ended as " + string(job.Status)
		if job.Error != "" {
			text += ": " + job.Error
		}
		if len(job.Result) > 0 {
			text += " with the result " + string(job.Result)
		}
		lines = append(lines, historyLine{job.CompletedAt, text})
	}
	return lines
}
