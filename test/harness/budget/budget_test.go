package budget

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

func TestAnExceededBudgetIsNamed(t *testing.T) {
	b := Budget{Name: "job.requests", Limit: 20, Of: "requests in a job's life"}
	assert.Empty(t, b.exceeded(20))
	assert.Contains(t, b.exceeded(25), "budget job.requests exceeded by 5 (25 %): 25 requests in a job's life, limit 20:")
}

func TestTraffic(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("0123456789")) }))
	defer server.Close()
	var traffic Traffic
	client := http.Client{Transport: traffic.Wrap(http.DefaultTransport)}
	response, err := client.Post(server.URL, "text/plain", strings.NewReader("abc"))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	response, err = client.Get(server.URL + "/pods?watch=true")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, []int64{1, 1, 13}, []int64{traffic.Requests.Load(), traffic.Watches.Load(), traffic.Bytes.Load()})
}

func TestAllocationsAndHeap(t *testing.T) {
	var sink [][]byte
	objects, bytes := Allocations(10, func() { sink = [][]byte{make([]byte, 1<<20)} })
	assert.InDelta(t, 2, objects, 1)
	assert.InDelta(t, 1<<20, bytes, 1<<16)
	_ = sink
	assert.InDelta(t, 1<<24, Heap(func() any { return make([]byte, 1<<24) }), 1<<20)
}

// Each budget is checked by a test.
func TestAllBudgetsAreChecked(t *testing.T) {
	all, err := All()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	seen := map[string]bool{}
	for _, b := range all {
		assert.False(t, seen[b.Name], "%s is there twice", b.Name)
		seen[b.Name] = true
		assert.Positive(t, b.Limit, b.Name)
		assert.NotEmpty(t, b.Of, b.Name)
		output, err := exec.CommandContext(t.Context(), "grep", "-rlF", "--include=*_test.go", `"`+b.Name+`"`,
			apiserver.Root()+"/controllers", apiserver.Root()+"/internal").Output()
		assert.NoError(t, err, "no test checks the budget %s", b.Name)
		assert.NotEmpty(t, output)
	}
}
