package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// What the proxy does to requests of the manager.
const (
	refusedConflict    = "write refused with 409"
	refusedForbidden   = "write refused with 403"
	refusedInvalid     = "write refused with 422"
	refusedTooMany     = "write refused with 429"
	refusedTooManyBare = "write refused with 429 that no client repeats"
	refusedInternal    = "write refused with 500"
	lostRequest        = "write lost before the API server got it"
	lostAnswer         = "answer of a write lost"
	answerHangs        = "answer of a write hangs"
	readRefused        = "read refused with 500"
	killedBeforeWrite  = "manager killed before a write"
	killedAfterWrite   = "manager killed after a write"
	watchClosed        = "watch closed"
	watchLate          = "watch late"
	listOfEarlierTimes = "list of an earlier time"
)

var proxyFaults = append([]string{
	refusedConflict, refusedForbidden, refusedInvalid, refusedTooMany, refusedTooManyBare, refusedInternal, lostRequest, lostAnswer, answerHangs, readRefused,
	killedBeforeWrite, killedAfterWrite, watchClosed, watchLate, listOfEarlierTimes,
}, webhookFaults...)

// hangsFor is when a load balancer between them ends a request that the client has not given up.
const hangsFor = 8 * time.Second

// proxy passes requests of the manager on to the API server, and lets some of them fail while faults are on.
type proxy struct {
	server  *httptest.Server
	reverse *httputil.ReverseProxy
	faults  *tally
	front   *front // of the webhooks
	kill    func() // the manager, and returns once it is dead

	on     atomic.Bool
	writes atomic.Int64 // of objects, that reached the API server

	mu     sync.Mutex
	random *rand.Rand
	lists  map[string]stored // the first answer to each list that the manager of before got
	next   map[string]stored // that of this one
}

// stored is an answer.
type stored struct {
	header  http.Header
	content []byte
}

// newProxy makes one, and a front at the address by which the API server calls the webhooks.
func newProxy(t *testing.T, api *rest.Config, token, webhooks string, faults *tally, kill func()) *proxy {
	t.Helper()
	base, err := rest.TransportFor(&rest.Config{Host: api.Host, TLSClientConfig: rest.TLSClientConfig{CAData: api.CAData}})
	require.NoError(t, err)
	target, _, err := rest.DefaultServerUrlFor(api)
	require.NoError(t, err)
	p := &proxy{faults: faults, kill: kill, lists: map[string]stored{}, next: map[string]stored{}, random: rand.New(rand.NewPCG(0, 0))}
	p.reverse = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+token) // which clients do not send without TLS
		},
		Transport:     base,
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(answer *http.Response) error {
			if isWatch(answer.Request) {
				answer.Body = &late{ReadCloser: answer.Body, proxy: p}
			}
			return nil
		},
	}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	p.front = newFront(t, api, webhooks, faults)
	return p
}

// begin has the seed decide from now on.
func (p *proxy) begin(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.random = rand.New(rand.NewPCG(seed, 1))
	p.on.Store(true)
	p.front.begin(seed)
}

// end lets all requests pass.
func (p *proxy) end() {
	p.on.Store(false)
	p.front.end()
}

// restarted is called for each new manager.
func (p *proxy) restarted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lists, p.next = p.next, map[string]stored{}
}

// chance says whether something of a probability happens now.
func (p *proxy) chance(probability float64) bool {
	if !p.on.Load() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.random.Float64() < probability
}

// pick is one of several.
func (p *proxy) pick(from []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return from[p.random.IntN(len(from))]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case isWatch(r):
		p.watch(w, r)
	case r.Method == http.MethodGet:
		p.read(w, r)
	case isAside(r):
		p.reverse.ServeHTTP(w, r)
	default:
		p.write(w, r)
	}
}

// write lets one write of a dozen fail, and the manager die at one of a hundred.
func (p *proxy) write(w http.ResponseWriter, r *http.Request) {
	if p.chance(0.01) {
		fault := p.pick([]string{killedBeforeWrite, killedAfterWrite})
		p.faults.add(fault)
		if fault == killedAfterWrite {
			p.pass(discard{header: http.Header{}}, r)
		}
		p.kill()
		panic(http.ErrAbortHandler)
	}
	if !p.chance(0.08) {
		p.pass(w, r)
		return
	}
	fault := p.pick([]string{
		refusedConflict, refusedForbidden, refusedInvalid, refusedTooMany, refusedTooManyBare, refusedInternal, lostRequest, lostAnswer, answerHangs,
	})
	if fault == refusedInvalid && r.Method == http.MethodDelete {
		fault = refusedInternal // a deletion has no fields
	}
	p.faults.add(fault)
	switch fault {
	case lostRequest:
		panic(http.ErrAbortHandler)
	case lostAnswer:
		p.pass(discard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	case answerHangs:
		p.pass(discard{header: http.Header{}}, r)
		select {
		case <-r.Context().Done():
		case <-time.After(hangsFor):
		}
		panic(http.ErrAbortHandler)
	default:
		refuse(w, fault)
	}
}

func (p *proxy) pass(w http.ResponseWriter, r *http.Request) {
	p.writes.Add(1)
	p.reverse.ServeHTTP(w, r)
}

// read answers a list of a manager that has just started with what the manager before it was given, as another replica of the API
// server may that is behind.
func (p *proxy) read(w http.ResponseWriter, r *http.Request) {
	if p.chance(0.01) {
		p.faults.add(readRefused)
		refuse(w, readRefused)
		return
	}
	if r.URL.Query().Get("resourceVersion") != "0" {
		p.reverse.ServeHTTP(w, r)
		return
	}
	what := r.URL.RequestURI() + " " + r.Header.Get("Accept") // several caches hold objects of a kind, each with its own labels
	p.mu.Lock()
	earlier, known := p.lists[what]
	_, again := p.next[what]
	p.mu.Unlock()
	if known && !again && p.chance(0.5) {
		p.faults.add(listOfEarlierTimes)
		maps.Copy(w.Header(), earlier.header)
		_, _ = w.Write(earlier.content)
		return
	}
	recorder := &record{ResponseWriter: w}
	p.reverse.ServeHTTP(recorder, r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !again && recorder.code == http.StatusOK {
		p.next[what] = stored{w.Header().Clone(), recorder.content.Bytes()}
	}
}

// watch has the client list first, in place of a watch that begins with all objects, since only lists can be of an earlier time.
func (p *proxy) watch(w http.ResponseWriter, r *http.Request) {
	if p.on.Load() && r.URL.Query().Get("sendInitialEvents") == "true" {
		refuse(w, refusedInvalid)
		return
	}
	p.reverse.ServeHTTP(w, r)
}

// late is the body of a watch: now and then an event comes late, or the connection ends.
type late struct {
	io.ReadCloser

	proxy *proxy
}

func (l *late) Read(into []byte) (int, error) {
	n, err := l.ReadCloser.Read(into)
	switch {
	case err != nil:
	case l.proxy.chance(0.004):
		l.proxy.faults.add(watchClosed)
		return 0, io.ErrUnexpectedEOF
	case l.proxy.chance(0.02):
		l.proxy.faults.add(watchLate)
		time.Sleep(time.Second)
	}
	return n, err
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// isAside says that a request changes no object: a review, an event, or a lease.
func isAside(r *http.Request) bool {
	for _, part := range []string{"/events", "reviews", "/leases", "/token"} {
		if strings.Contains(r.URL.Path, part) {
			return true
		}
	}
	return false
}

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, fault string) {
	status := map[string]metav1.Status{
		refusedConflict: {Code: http.StatusConflict, Reason: metav1.StatusReasonConflict,
			Message: "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again"},
		refusedForbidden: {Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `jobs.batch is forbidden: User "system:serviceaccount:chaos:manager" cannot create resource "jobs" in API group "batch"`},
		refusedInvalid: {Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "spec: Invalid value: chaos",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Message: "Invalid value: chaos", Field: "spec"}}}},
		refusedTooMany: {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "too many requests, please try again later",
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1}},
		refusedTooManyBare: {Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "too many requests, please try again later"},
		refusedInternal:    {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "Internal error occurred: chaos"},
		readRefused:        {Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: "Internal error occurred: chaos"},
	}[fault]
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.Status = metav1.StatusFailure
	if fault == refusedTooMany { // without this header the client gives the answer to its caller
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	if err := json.NewEncoder(w).Encode(status); err != nil {
		panic(fmt.Sprintf("encode a status: %v", err))
	}
}

// record keeps a copy of an answer.
type record struct {
	http.ResponseWriter

	code    int
	content bytes.Buffer
}

func (r *record) WriteHeader(code int) {
	r.code = code
	r.ResponseWriter.WriteHeader(code)
}

func (r *record) Write(content []byte) (int, error) {
	r.content.Write(content)
	return r.ResponseWriter.Write(content)
}

// Unwrap lets the reverse proxy flush.
func (r *record) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// discard takes an answer that the manager does not get.
type discard struct{ header http.Header }

func (d discard) Header() http.Header               { return d.header }
func (d discard) Write(content []byte) (int, error) { return len(content), nil }
func (d discard) WriteHeader(int)                   {}
