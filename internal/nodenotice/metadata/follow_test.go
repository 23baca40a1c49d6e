package metadata_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/nodenotice/metadata"
	"github.com/dcnlab/spot-training-operator/test/fakes/metadataserver"
)

// patience bounds every wait.
const patience = 20 * time.Second

// follow a key of a server, and return what is told.
func follow(t *testing.T, options metadata.Options) (*metadata.Follower, <-chan string, *log) {
	t.Helper()
	lines := &log{}
	options.Log = slog.New(slog.NewTextHandler(lines, nil))
	f := metadata.New(options)
	told := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		f.Follow(ctx, metadata.KeyPreempted, func(text string, seen time.Time) {
			assert.WithinDuration(t, time.Now(), seen, time.Second)
			told <- text
		})
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return f, told, lines
}

// log keeps what is logged.
type log struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *log) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(line)
}

func (l *log) lines() int { return strings.Count(l.String(), "\n") }

func (l *log) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}

func startServer(t *testing.T) *metadataserver.Server {
	t.Helper()
	server, err := metadataserver.Start("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	return server
}

func next(t *testing.T, told <-chan string) string {
	t.Helper()
	select {
	case text := <-told:
		return text
	case <-time.After(patience):
		require.FailNow(t, "nothing was told")
		return ""
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, patience, 5*time.Millisecond, what)
}

func TestAChangeIsToldAtOnce(t *testing.T) {
	server := startServer(t)
	_, told, lines := follow(t, metadata.Options{URL: server.URL})
	assert.Equal(t, "FALSE", next(t, told))
	eventually(t, "a request hangs", func() bool { return server.Hanging() == 1 })

	at := server.Set(metadata.KeyPreempted, "TRUE")
	assert.Equal(t, "TRUE", next(t, told))
	t.Logf("told %s after the change", time.Since(at))
	eventually(t, "a request hangs", func() bool { return server.Hanging() == 1 })
	assert.Equal(t, 3, server.Requests(), "one to begin with, one that hung, one that hangs")
	assert.Empty(t, lines.String())
}

func TestNothingIsToldWhileNothingChanges(t *testing.T) {
	server := startServer(t)
	_, told, lines := follow(t, metadata.Options{URL: server.URL, Hold: time.Second})
	assert.Equal(t, "FALSE", next(t, told))
	eventually(t, "the server lets go of a request twice", func() bool { return len(server.ETags()) >= 3 })
	assert.Empty(t, told)
	assert.Empty(t, lines.String())
	// Another key does not matter.
	server.Set("instance/attributes/x", "y")
	server.Set(metadata.KeyPreempted, "TRUE")
	assert.Equal(t, "TRUE", next(t, told))
}

func TestProblemsOfTheServer(t *testing.T) {
	for name, problem := range map[string]metadataserver.Fault{
		"it answers 503":           metadataserver.Unavailable,
		"it resets connections":    metadataserver.Reset,
		"it says nothing":          metadataserver.Silent,
		"it is another server now": metadataserver.Foreign,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			_, told, lines := follow(t, metadata.Options{
				URL: server.URL, Hold: time.Second, Slack: 200 * time.Millisecond, RetryFirst: time.Millisecond, RetryMax: 10 * time.Millisecond,
			})
			assert.Equal(t, "FALSE", next(t, told))
			server.Have(problem)
			before := server.Requests()
			eventually(t, "it is asked again", func() bool { return server.Requests() > before+2 })
			server.Set(metadata.KeyPreempted, "TRUE")
			server.Have(metadataserver.None)
			assert.Equal(t, "TRUE", next(t, told))
			eventually(t, "the end of the problem is logged", func() bool { return strings.Contains(lines.String(), "the metadata server answers") })
			assert.Equal(t, 2, lines.lines(), "one line for the problem, one for its end:\n%s", lines)
		})
	}
}

func TestAServerThatNamesNoVersionIsAskedNowAndThen(t *testing.T) {
	server := startServer(t)
	server.Have(metadataserver.WithoutETag)
	_, told, _ := follow(t, metadata.Options{URL: server.URL, RetryMax: 10 * time.Millisecond})
	assert.Equal(t, "FALSE", next(t, told))
	server.Set(metadata.KeyPreempted, "TRUE")
	assert.Equal(t, "TRUE", next(t, told))
}

func TestWhereThereIsNoMetadataServer(t *testing.T) {
	for name, prepare := range map[string]func(*metadataserver.Server){
		"nothing listens":        func(s *metadataserver.Server) { _ = s.Close() },
		"it is another server's": func(s *metadataserver.Server) { s.Have(metadataserver.Foreign) },
		"it has not the key":     func(s *metadataserver.Server) { s.Set(metadata.KeyPreempted, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := metadataserver.Start("127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = server.Close() })
			prepare(server)
			f, told, lines := follow(t, metadata.Options{URL: server.URL, AbsentFirst: time.Millisecond, AbsentMax: time.Hour})
			eventually(t, "the line", func() bool { return lines.lines() == 1 })
			// The pauses grow: of the first second most is one of them.
			time.Sleep(time.Second)
			assert.Less(t, server.Requests(), 13)
			assert.Equal(t, 1, lines.lines(), lines.String())
			assert.Empty(t, told)
			assert.Empty(t, f.Stuck(time.Now()))
		})
	}
}

func TestAServerThatComesLaterIsFound(t *testing.T) {
	server := startServer(t)
	server.Have(metadataserver.Unavailable)
	_, told, _ := follow(t, metadata.Options{URL: server.URL, AbsentFirst: time.Millisecond, AbsentMax: 20 * time.Millisecond})
	eventually(t, "it is asked", func() bool { return server.Requests() > 3 })
	server.Have(metadataserver.None)
	assert.Equal(t, "FALSE", next(t, told))
}

func TestAKeyThatIsNoLongerFollowedIsStuck(t *testing.T) {
	server := startServer(t)
	f, told, _ := follow(t, metadata.Options{URL: server.URL})
	next(t, told)
	assert.Empty(t, f.Stuck(time.Now().Add(13*time.Second)))
	assert.Equal(t, []string{metadata.KeyPreempted}, f.Stuck(time.Now().Add(time.Minute)))
}

func TestRequestsAreWhatTheMetadataServerWants(t *testing.T) {
	requests := make(chan *http.Request, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("ETag", "a/b+c")
		select {
		case requests <- r:
		default:
			<-r.Context().Done()
		}
		_, _ = w.Write([]byte("FALSE\n"))
	}))
	t.Cleanup(server.Close)
	_, told, _ := follow(t, metadata.Options{URL: server.URL + "/", Hold: 7 * time.Second})
	assert.Equal(t, "FALSE", next(t, told))

	first, second := <-requests, <-requests
	assert.Equal(t, "/computeMetadata/v1/instance/preempted", first.URL.Path)
	assert.Empty(t, first.URL.RawQuery)
	assert.Equal(t, "Google", first.Header.Get("Metadata-Flavor"))
	assert.Equal(t, "last_etag=a%2Fb%2Bc&timeout_sec=7&wait_for_change=true", second.URL.RawQuery)
}
