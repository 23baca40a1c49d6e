package rest

import (
	"bufio"
	"context"
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
	options := LogOptions{Tail: defaultTail, Timestamps: true}
	err := c.query(
		optional("follow", unquoted(asBoolean(&options.Follow))),
		optional("tail", unquoted(asInteger(0, maxTail, &options.Tail))),
		optional("timestamps", unquoted(asBoolean(&options.Timestamps))),
	)
	if err != nil {
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

// stream is an answer that takes its time. It begins with the first part.
type stream struct {
	*call
	control *http.ResponseController
}

func (c *call) stream(contentType string) stream {
	c.w.Header()["Content-Type"] = []string{contentType}
	return stream{c, http.NewResponseController(c.w)}
}

// Write implements io.Writer.
func (s stream) Write(part []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
		s.w.WriteHeader(s.status)
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // The server's own limit holds otherwise.
	return s.w.Write(part)
}

// send something at once; false: the client has gone.
func (s stream) send(text string) bool {
	_, err := io.WriteString(s, text)
	return err == nil && s.control.Flush() == nil
}

func (c *call) copyText(lines io.Reader) error {
	out := c.stream("text/plain; charset=utf-8")
	_, err := io.Copy(out, struct{ io.Reader }{lines}) // without a WriteTo, so that it is in parts
	switch {
	case err == nil:
		_, _ = out.Write(nil) // An empty log is an answer, too.
		return nil
	case c.status == 0:
		return err
	}
	// The answer has begun: that it is not whole can only be said by breaking it off.
	panic(http.ErrAbortHandler)
}

// streamEvents sends each line as an event, and at the end one of the type end with the status of the job.
func (c *call) streamEvents(ctx context.Context, lines io.ReadCloser, id string) error {
	c.w.Header()["X-Accel-Buffering"] = []string{"no"}
	out := c.stream("text/event-stream")
	if !out.send("") {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A read that blocks ends when the client disconnects.
	defer context.AfterFunc(ctx, func() { _ = lines.Close() })()
	next := readLines(ctx, lines)
	end := func(status jobs.Status) { out.send("event: end\n" + `data: {"status":"` + string(status) + "\"}\n\n") }
	tick := time.NewTicker(c.service.KeepAlive)
	defer tick.Stop()
	quiet := true
	for connected := true; connected; {
		select {
		case <-tick.C:
			// The log of a job that ended before it had anything in the cluster has no end of its own.
			if quiet {
				if job, err := c.service.Store.Get(ctx, id); err == nil && job.Status.Ended() {
					end(job.Status)
					return nil
				}
			}
			quiet = true
			connected = out.send(": still there\n\n")
		case line, ok := <-next:
			quiet = false
			switch {
			case ctx.Err() != nil:
				// A stream that ends because the server does has not come to the end of the job.
				return nil
			case !ok:
				if job, err := c.service.Store.Get(ctx, id); err == nil {
					end(job.Status)
				}
				return nil
			case line.err != nil:
				c.service.Log.Error(line.err, "Cannot read a log to its end", "requestID", c.id, "job", id)
				out.send(`event: error` + "\n" + `data: {"code":"SERVICE_UNAVAILABLE","message":"the log broke off: follow it again"}` + "\n\n")
				return nil
			}
			connected = out.send("data: " + line.text + "\n\n")
		}
	}
	return nil
}

// readLine is a line of a log, or the error that it ends with.
type readLine struct {
	text string
	err  error
}

// readLines reads lines until the end or until the context is done.
func readLines(ctx context.Context, from io.Reader) <-chan readLine {
	next := make(chan readLine)
	go func() {
		defer close(next)
		scanner := bufio.NewScanner(from)
		scanner.Buffer(make([]byte, 0, 4096), maxLine)
		send := func(line readLine) {
			select {
			case next <- line:
			case <-ctx.Done():
			}
		}
		for ctx.Err() == nil && scanner.Scan() {
			// A carriage return would end the line of the event, too.
			send(readLine{text: strings.ReplaceAll(scanner.Text(), "\r", " ")})
		}
		if err := scanner.Err(); err != nil {
			send(readLine{err: err})
		}
	}()
	return next
}

// history is the log of a job without pods: its states, and what its workers said.
func (s *service) history(ctx context.Context, job jobs.Job, options LogOptions) io.ReadCloser {
	told := map[string]bool{}
	// untold are the lines that have not been told yet.
	untold := func() (lines []string) {
		for _, line := range historyOf(&job) {
			if !told[line] {
				told[line] = true
				if !options.Timestamps {
					_, line, _ = strings.Cut(line, " ")
				}
				lines = append(lines, line)
			}
		}
		return lines
	}
	lines := untold()
	first := strings.NewReader(strings.Join(lines[max(0, len(lines)-options.Tail):], ""))
	if !options.Follow || job.Status.Ended() {
		return io.NopCloser(first)
	}
	reader, writer := io.Pipe()
	go func() {
		_, err := first.WriteTo(writer)
		for err == nil && !job.Status.Ended() {
			select {
			case <-ctx.Done():
				err = ctx.Err()
				continue
			case <-time.After(s.LogInterval):
			}
			if job, err = s.Store.Get(ctx, job.ID); err == nil {
				_, err = strings.NewReader(strings.Join(untold(), "")).WriteTo(writer) // which writes nothing when there is nothing
			}
		}
		_ = writer.CloseWithError(err) // It never fails.
	}()
	return reader
}

// historyOf a job are the lines about its states, each with its time.
func historyOf(job *jobs.Job) (lines []string) {
	add := func(at time.Time, text string) {
		text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
		lines = append(lines, at.UTC().Format("2006-01-02T15:04:05.000000Z")+" "+text+"\n")
	}
	add(job.CreatedAt, "submitted by "+job.Submitter+" to queue "+job.Queue)
	if !job.StartedAt.IsZero() {
		text := "started"
		if job.WorkerID != "" {
			text += " by worker " + job.WorkerID
		}
		add(job.StartedAt, text)
	}
	if job.Status == jobs.Retrying && job.Error != "" {
		add(job.NextRetryAt, "waits until then to be tried again, because it failed: "+job.Error)
	}
	if job.Status.Ended() {
		text := "ended as " + string(job.Status)
		if job.Error != "" {
			text += ": " + job.Error
		}
		if len(job.Result) > 0 {
			text += " with the result " + string(job.Result)
		}
		add(job.CompletedAt, text)
	}
	return lines
}
