// Package budget holds what the operator may cost in figures that no clock decides: requests, bytes, allocations, statements. All budgets
// are in budgets.yaml. Tests that check them are named TestBudget..., and run without the race detector, which allocates by itself.
package budget

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// Budget is one limit.
type Budget struct {
	// Name is unique.
	Name string `json:"name"`
	// Limit is the largest value that is accepted.
	Limit float64 `json:"limit"`
	// Of says what is counted, with its unit.
	Of string `json:"of"`
}

//go:embed budgets.yaml
var file []byte

// All returns the budgets of the file.
func All() ([]Budget, error) {
	var all []Budget
	if err := yaml.UnmarshalStrict(file, &all); err != nil {
		return nil, fmt.Errorf("read budgets.yaml: %w", err)
	}
	return all, nil
}

// Check fails the test when a value is over its budget. It logs the value, so that go test -v shows how much is left.
func Check(t testing.TB, name string, value float64) {
	t.Helper()
	all, err := All()
	require.NoError(t, err)
	for _, b := range all {
		if b.Name != name {
			continue
		}
		if message := b.exceeded(value); message != "" {
			t.Error(message)
		}
		t.Logf("%s: %.4g of %.4g %s", name, value, b.Limit, b.Of)
		return
	}
	t.Errorf("budgets.yaml has no budget %q", name)
}

// exceeded says by how much a value exceeds the budget; empty when it does not.
func (b Budget) exceeded(value float64) string {
	if value <= b.Limit {
		return ""
	}
	return fmt.Sprintf("budget %s exceeded by %.4g (%.0f %%): %.4g %s, limit %.4g: find what costs more, or raise the limit in "+
		"test/harness/budget/budgets.yaml and say why", b.Name, value-b.Limit, 100*(value-b.Limit)/b.Limit, value, b.Of, b.Limit)
}

// Allocations returns how many objects and bytes one call allocates, as the mean of so many after a first that does not count.
func Allocations(calls int, call func()) (objects, bytes float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	call()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		call()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(calls), float64(after.TotalAlloc-before.TotalAlloc) / float64(calls)
}

// Heap returns by how many bytes the live heap grows when something is made and kept.
func Heap(grow func() (kept any)) float64 {
	before := live()
	kept := grow()
	after := live()
	runtime.KeepAlive(kept)
	return after - before
}

func live() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools held
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// Traffic counts the requests of a client. It is safe for concurrent use.
type Traffic struct {
	// Requests besides watches, and Watches that were opened.
	Requests, Watches atomic.Int64
	// Bytes of the bodies of requests and answers, watches included.
	Bytes atomic.Int64
}

// Wrap counts what passes through a transport.
func (c *Traffic) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if strings.Contains(request.URL.RawQuery, "watch=true") {
			c.Watches.Add(1)
		} else {
			c.Requests.Add(1)
		}
		c.Bytes.Add(max(request.ContentLength, 0))
		response, err := next.RoundTrip(request)
		if err == nil {
			response.Body = &counted{response.Body, &c.Bytes}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// counted is a body that counts what is read of it.
type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
