package rest

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

const (
	defaultTail = 100
	maxTail     = 10_000
	// writeTimeout is how long a client may take to read a part of a stream.
	writeTimeout = 30 * time.Second
)

func (s *service) jobLogs(c *call) ([]byte, error) {
	options := LogOptions{Tail: defaultTail, Timestamps: true}
	err := c.query(
		optional("follow", unquoted(asBoolean(&options.Follow))),
		optional("tail", unquoted(asInteger(0, maxTail, &options.Tail))),
		optional("timestamps", unquoted(asBoolean(&options.Timestamps))),
	)
	if err != nil {
		return nil, err
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
		return nil, err
	}
	ofPods := s.Kubernetes != nil && job.Executor == jobs.Kubernetes
	if ofPods {
		// As kubectl logs needs it: what pods print may be more secret than how their job stands.
		get := auth.Attributes{Verb: "get", Resource: auth.Pods, Subresource: "log", Namespace: job.Namespace}
		if err := s.access.Check(ctx, c.identity, get); err != nil {
			return nil, err
		}
	}
	if c.Method == http.MethodHead {
		options.Follow, options.Tail = false, 0
	}
	if options.Follow {
		if err := s.streams.begin(c.user()); err != nil {
			return nil, err
		}
		defer s.streams.end(c.user())
	}
	lines := s.history(job, options)
	if ofPods {
		if lines, err = s.Kubernetes.Logs(ctx, job, options); err != nil {
			return nil, err
		}
	}
	if !options.Follow {
		return nil, c.copyText(ctx, lines)
	}
	c.streamEvents(ctx, lines, job.ID)
	return nil, nil
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

func (c *call) copyText(ctx context.Context, lines Lines) error {
	out := c.stream("text/plain; charset=utf-8")
	parts := bufio.NewWriterSize(out, 32<<10)
	err := lines(ctx, func(line string) error {
		_, err := parts.WriteString(line)
		return err
	})
	if err == nil {
		if err = parts.Flush(); err == nil {
			_, _ = out.Write(nil) // An empty log is an answer, too.
		}
	}
	if err != nil && c.status != 0 {
		// The answer has begun: that it is not whole can only be said by breaking it off.
		panic(http.ErrAbortHandler)
	}
	return err
}

// streamEvents sends each line as an event, and at the end one of the type end with the status of the job.
func (c *call) streamEvents(ctx context.Context, lines Lines, id string) {
	c.w.Header()["X-Accel-Buffering"] = []string{"no"}
	out := c.stream("text/event-stream")
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var sending sync.Mutex
	send := func(text string) error {
		sending.Lock()
		defer sending.Unlock()
		_, err := io.WriteString(out, text)
		if err = cmp.Or(err, out.control.Flush()); err != nil {
			stop() // the client has gone
		}
		return err
	}
	_ = send("")
	var heard atomic.Bool
	var keeping sync.WaitGroup
	keeping.Go(func() {
		defer stop()
		_ = wait.PollUntilContextCancel(reading, c.service.KeepAlive, false, func(ctx context.Context) (end bool, err error) {
			// The log of a job that ended before it had anything in the cluster has no end of its own.
			if !heard.Swap(false) {
				if job, err := c.service.Store.Get(ctx, id); err == nil && job.Status.Ended() {
					return true, nil
				}
			}
			return false, send(": still there\n\n")
		})
	})
	err := lines(reading, func(line string) error {
		heard.Store(true)
		// A carriage return would end the line of the event, too.
		return send("data: " + strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\r", " ") + "\n\n")
	})
	brokeOff := err != nil && reading.Err() == nil
	stop()
	keeping.Wait()
	if ctx.Err() != nil {
		return // A stream that ends because the server does has not come to the end of the job.
	}
	if brokeOff {
		c.service.Log.Error(err, "Cannot read a log to its end", "requestID", c.id, "job", id)
		_ = send("event: error\n" + `data: {"code":"SERVICE_UNAVAILABLE","message":"the log broke off: follow it again"}` + "\n\n")
	} else if job, err := c.service.Store.Get(ctx, id); err == nil {
		_ = send("event: end\n" + `data: {"status":"` + string(job.Status) + "\"}\n\n")
	}
}

// history is the log of a job without pods: its states, and what its workers said.
func (s *service) history(job jobs.Job, options LogOptions) Lines {
	return func(ctx context.Context, tell func(string) error) (err error) {
		told := map[string]bool{}
		for tail := options.Tail; ; tail = math.MaxInt {
			entries := slices.DeleteFunc(historyOf(&job), func(entry string) bool { return told[entry] })
			for i, entry := range entries {
				told[entry] = true
				if !options.Timestamps {
					_, entry, _ = strings.Cut(entry, " ")
				}
				if i < len(entries)-tail {
					continue
				}
				if err := LinesOf(entry)(ctx, tell); err != nil {
					return err
				}
			}
			if !options.Follow || job.Status.Ended() {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(s.LogInterval):
			}
			if job, err = s.Store.Get(ctx, job.ID); err != nil {
				return err
			}
		}
	}
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
