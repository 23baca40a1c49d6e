package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

// freePort is a port that no loopback address uses.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// group are the workers of a job, each at a loopback address of its own.
type group struct {
	t          *testing.T
	port       int
	reportPort int
	size       int
	// addresses of the workers by their names; another worker may be told others.
	addresses map[string]string
}

func newGroup(t *testing.T, size int) *group {
	t.Helper()
	g := &group{t: t, port: freePort(t), reportPort: freePort(t), size: size, addresses: map[string]string{}}
	for replica := range size {
		g.addresses[nameOf(replica)] = fmt.Sprintf("127.0.0.%d", 10+replica)
	}
	return g
}

func nameOf(replica int) string { return fmt.Sprintf("bert-training-%d.bert-headless", replica) }

// check is one worker, which reports at once whom it does not reach.
func (g *group) check(replica int) *check {
	settings := Settings{
		ID: "uid", Replica: replica, Host: g.addresses[nameOf(replica)], Port: g.port, ReportPort: g.reportPort, Clock: clock.RealClock{},
		Log: slog.New(slog.DiscardHandler),
	}
	for peer := range g.size {
		settings.Peers = append(settings.Peers, nameOf(peer))
	}
	c := newCheck(settings)
	c.limit = 200 * time.Millisecond
	c.lookup = func(_ context.Context, host string) ([]string, error) {
		if address := g.addresses[host]; address != "" {
			return []string{address}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return c
}

// start runs a worker, and returns what it ends with.
func (g *group) start(c *check) <-chan error {
	ctx, cancel := context.WithCancel(g.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx) }()
	g.t.Cleanup(cancel)
	return ended
}

// awaitReport waits until replica 0 reports what it should.
func (g *group) awaitReport(is func(Report) bool) Report {
	g.t.Helper()
	var last Report
	url := "http://" + net.JoinHostPort(g.addresses[nameOf(0)], strconv.Itoa(g.reportPort)) + ReportPath
	require.Eventually(g.t, func() bool {
		answer, err := http.Get(url)
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		var report Report
		if json.NewDecoder(answer.Body).Decode(&report) != nil {
			return false
		}
		last = report
		return is(report)
	}, time.Minute, 10*time.Millisecond)
	return last
}

func TestWorkersGoOnOnceAllReachOneAnother(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	ends := []<-chan error{g.start(g.check(0)), g.start(g.check(1))}
	fromBoth := []Pair{ // the view of worker 1 is in the report of replica 0
		{From: 0, To: 2, Cause: Refused, Detail: fmt.Sprintf("127.0.0.12:%d refuses connections", g.port)},
		{From: 1, To: 2, Cause: Refused, Detail: fmt.Sprintf("127.0.0.12:%d refuses connections", g.port)},
	}
	g.awaitReport(func(r Report) bool { return slices.Equal(r.Pairs, fromBoth) })
	for _, end := range ends {
		assert.Empty(t, end, "they wait")
	}

	ends = append(ends, g.start(g.check(2)))

	for replica, end := range ends {
		require.NoError(t, <-end, replica)
	}
}

func TestAWorkerThatIsStoppedSaysSo(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.check(1).run(ctx) }()
	cancel()
	assert.ErrorIs(t, <-ended, context.Canceled)
}

// Replica 0 does not hear whether a worker heard that it may go.
func TestAWorkerThatIsGoneHasBeenReleased(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2)
	zero := g.check(0)
	other := httptest.NewUnstartedServer(nil)
	listener, err := net.Listen("tcp", net.JoinHostPort(g.addresses[nameOf(1)], strconv.Itoa(g.port)))
	require.NoError(t, err)
	require.NoError(t, other.Listener.Close())
	other.Listener = listener
	other.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			go other.Close() // a training begins
			panic(http.ErrAbortHandler)
		}
		writeJSON(w, view{Replica: 1, Port: g.port, Complete: true})
	})
	other.Start()
	require.NoError(t, <-g.start(zero))
}

func TestTheReportNamesTheCause(t *testing.T) {
	t.Parallel()
	serves := func(of view) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, of) }
	}
	for name, test := range map[string]struct {
		change func(*group, *check)
		answer http.HandlerFunc // of worker 1 at the port of the group; nil when nothing listens
		want   Pair
	}{
		"DNS does not know the name": {
			change: func(g *group, _ *check) { delete(g.addresses, nameOf(1)) },
			want:   Pair{Cause: NotResolved, Detail: "DNS knows no address of bert-training-1.bert-headless"},
		},
		"DNS does not answer": {
			change: func(_ *group, c *check) {
				c.lookup = func(context.Context, string) ([]string, error) {
					return nil, &net.DNSError{Err: "i/o timeout", Name: nameOf(1), Server: "10.96.0.10:53", IsTimeout: true}
				}
			},
			want: Pair{Cause: NotResolved, Detail: "the name bert-training-1.bert-headless cannot be looked up: i/o timeout 10.96.0.10:53"},
		},
		"nothing listens": {want: Pair{Cause: Refused, Detail: "127.0.0.11:PORT refuses connections"}},
		"nothing answers": {
			answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			want:   Pair{Cause: NoAnswer, Detail: "127.0.0.11:PORT does not answer within 200ms"},
		},
		"another program answers": {
			answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") },
			want:   Pair{Cause: Refused, Detail: "another program than the check of this job answers at 127.0.0.11:PORT"},
		},
		"another job answers": {
			answer: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "id", http.StatusForbidden) },
			want:   Pair{Cause: Refused, Detail: "another program than the check of this job answers at 127.0.0.11:PORT"},
		},
		"another worker answers": {
			answer: serves(view{Replica: 7}),
			want:   Pair{Cause: Refused, Detail: "bert-training-1.bert-headless leads to replica 7"},
		},
		"only the port of the group is open": {
			answer: serves(view{Replica: 1, Port: 1}),
			want: Pair{Cause: Refused, Detail: "127.0.0.11:1 refuses connections, although port PORT does: collective libraries choose their " +
				"ports at random, as this one was"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, 2)
			c := g.check(0)
			if test.answer != nil {
				listener, err := net.Listen("tcp", net.JoinHostPort(g.addresses[nameOf(1)], strconv.Itoa(g.port)))
				require.NoError(t, err)
				server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: test.answer}}
				server.Start()
				defer server.Close()
			}
			if test.change != nil {
				test.change(g, c)
			}
			failed := c.reach(t.Context(), 1, nameOf(1))
			require.NotNil(t, failed)
			assert.Equal(t, test.want.Cause, failed.cause)
			assert.Equal(t, strings.ReplaceAll(test.want.Detail, "PORT", strconv.Itoa(g.port)), failed.detail)
		})
	}
}

func TestAWorkerThatWasNotAskedYetIsNotReported(t *testing.T) {
	t.Parallel()
	c := newGroup(t, 3).check(0)
	refused := problem{Refused, "127.0.0.11:29500 refuses connections"}
	c.found(1, &refused)
	assert.Equal(t, []Pair{{From: 0, To: 1, Cause: Refused, Detail: refused.detail}}, c.report().Pairs, "worker 2 was not asked")
}

func TestOnlyWorkersOfTheJobAreAnswered(t *testing.T) {
	t.Parallel()
	c := newGroup(t, 2).check(0)
	w := httptest.NewRecorder()
	c.serveView(w, httptest.NewRequest(http.MethodPost, viewPath+"?id=another", nil))
	assert.Equal(t, http.StatusForbidden, w.Code)
	select {
	case <-c.released:
		assert.Fail(t, "it was released")
	default:
	}
}

func TestAReportIsBounded(t *testing.T) {
	t.Parallel()
	var pairs []Pair
	for n := range MaxPairs + 5 {
		pairs = append(pairs, Pair{From: 1, To: MaxPairs + 5 - n})
	}
	report := newReport(pairs)
	assert.Len(t, report.Pairs, MaxPairs)
	assert.Equal(t, Pair{From: 1, To: 1}, report.Pairs[0])
	assert.Equal(t, 5, report.More)
}
