package performance

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// Between these lines of the document lie the results, and those of queues.
const (
	resultsBegin = "<!-- results: written by test/bench/performance -->"
	resultsEnd   = "<!-- end of results -->"
	queuesBegin  = "<!-- queues: written by test/bench/performance -only baseline -->"
	queuesEnd    = "<!-- end of queues -->"
)

// publish prints results, if there are some, and puts them between two marks in the document, when one is named.
func (b *bench) publish(begin, end, results string) {
	b.Helper()
	if results == "" {
		return
	}
	text := fmt.Sprintf("Measured with %d processors (%s/%s) by\n\n```sh\n%s\n```\n%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		command(), strings.TrimRight(results, "\n"))
	fmt.Println(text)
	if b.doc == "" {
		return
	}
	document, err := os.ReadFile(b.doc)
	require.NoError(b, err)
	before, rest, begun := strings.Cut(string(document), begin)
	_, after, ended := strings.Cut(rest, end)
	require.True(b, begun && ended, "%s lacks the lines %q and %q, between which the results go", b.doc, begin, end)
	require.NoError(b, os.WriteFile(b.doc, []byte(before+begin+"\n\n"+text+"\n\n"+end+after), 0o644))
}

func ofEach(count, jobs int) string { return fmt.Sprintf("%.2f", float64(count)/float64(jobs)) }

func rounds(count int) string {
	if count == 1 {
		return "one round"
	}
	return fmt.Sprintf("median of %d rounds in turn, in brackets the least and the most", count)
}

func each[T any](loads []load, of func(load) T) []T {
	var values []T
	for _, l := range loads {
		values = append(values, of(l))
	}
	return values
}

func spread(values []time.Duration) string {
	if len(values) == 1 {
		return fmt.Sprintf("%.2f s", values[0].Seconds())
	}
	return fmt.Sprintf("%.2f s (%.2f–%.2f)", median(values).Seconds(), slices.Min(values).Seconds(), slices.Max(values).Seconds())
}
