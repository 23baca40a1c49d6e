package docs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const example = `# A page

## What *it* is: a "test"

~~~yaml rejected
kind: A
~~~

It is refused with ` + "`spec.model: is missing`" + `.

~~~text
the whole message,
in two lines
~~~

## Next

` + "`not of the block above`" + ` and [a link](other.md#part).

- ~~~yaml
  kind: B
  ~~~
`

func TestReadingAPage(t *testing.T) {
	p := parsePage("docs/a.md", []byte(example))
	var yamls []block
	for _, b := range p.blocks() {
		if b.isYAML() {
			yamls = append(yamls, b)
		}
	}
	require.Len(t, yamls, 2)
	assert.Equal(t, block{
		info: []string{"yaml", "rejected"}, text: "kind: A\n", line: 6,
		quotes: []string{"spec.model: is missing", "the whole message,\nin two lines\n"},
	}, yamls[0])
	assert.True(t, yamls[0].isMarked(markRejected))
	assert.Equal(t, "kind: B\n", yamls[1].text)
	assert.False(t, yamls[1].isMarked(markRejected))
	assert.Equal(t, map[string]bool{"a-page": true, "what-it-is-a-test": true, "next": true}, p.anchors())
	assert.Equal(t, []string{"other.md#part"}, p.links())
}

// What the API server refuses is noticed, and so are words that it does not say.
func TestARefusalIsComparedWithThePage(t *testing.T) {
	documents := documentsOf(t, strings.ReplaceAll(smallest, "numWorkers: 2", "numWorkers: 0"))
	require.Len(t, documents, 1)
	err := apply(t, completed(t, documents[0]))
	require.ErrorContains(t, err, "spec.numWorkers")
	assert.True(t, quoted(err.Error(), []string{"numWorkers", "should be greater\nthan or equal to 1"}))
	assert.False(t, quoted(err.Error(), []string{"spec.numWorkers", "should be less than 1"}), "a field alone is no message")

	mistyped := documentsOf(t, "spec: {networking: {masterport: 1}}")
	require.ErrorContains(t, apply(t, completed(t, mistyped[0])), `unknown field "spec.networking.masterport"`)
}
