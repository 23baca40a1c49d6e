package day

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// transport sits between all clients and the API server, which knows the real time only: it puts the virtual time of
// their first sight into creationTimestamp and deletionTimestamp of all objects, the same for all who read them.
type transport struct {
	base  http.RoundTripper
	world *world

	mu    *sync.Mutex
	times map[string]string
}

func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	watch := request.URL.Query().Get("watch") == "true"
	end := func() {}
	if !watch {
		end = t.world.activity.begin()
	}
	defer end()
	if request.Method != http.MethodGet {
		t.world.writes.Add(1)
	}
	answer, err := t.base.RoundTrip(request)
	if err != nil || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		return answer, err
	}
	if watch {
		answer.Body = &lines{source: answer.Body, reader: bufio.NewReaderSize(answer.Body, 1<<16), transport: t}
		return answer, nil
	}
	content, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil {
		return nil, err
	}
	content = t.rewrite(content)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	answer.Header.Del("Content-Length")
	return answer, nil
}

// lines rewrites the events of a watch, one a line.
type lines struct {
	source    io.Closer
	reader    *bufio.Reader
	transport *transport
	rest      []byte
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		line, err := l.reader.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		l.transport.world.activity.bump()
		l.rest = l.transport.rewrite(line)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *lines) Close() error { return l.source.Close() }

func (t *transport) rewrite(content []byte) []byte {
	if !bytes.Contains(content, []byte(`"creationTimestamp"`)) {
		return content
	}
	var parsed map[string]any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if decoder.Decode(&parsed) != nil {
		return content
	}
	t.mu.Lock()
	t.stamp(parsed)
	t.mu.Unlock()
	rewritten, err := json.Marshal(parsed)
	if err != nil {
		return content
	}
	return append(rewritten, '\n')
}

func (t *transport) stamp(object map[string]any) {
	if inner, ok := object["object"].(map[string]any); ok {
		t.stamp(inner)
		return
	}
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if inner, ok := item.(map[string]any); ok {
				t.stamp(inner)
			}
		}
	}
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return
	}
	uid, _ := meta["uid"].(string)
	for _, field := range []string{"creationTimestamp", "deletionTimestamp"} {
		if at, ok := meta[field].(string); ok && uid != "" && at != "" {
			meta[field] = t.seen(uid + field)
		}
	}
}

func (t *transport) seen(what string) string {
	if at, ok := t.times[what]; ok {
		return at
	}
	at := t.world.clock.Now().UTC().Format(time.RFC3339)
	t.times[what] = at
	return at
}
