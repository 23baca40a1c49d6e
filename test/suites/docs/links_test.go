package docs_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A link within the repository leads to a file that is there, and its fragment to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	anchors := map[string]map[string]bool{}
	all := pages(t)
	for _, p := range all {
		anchors[p.path] = p.anchors()
	}
	count := 0
	for _, p := range all {
		for _, link := range p.links() {
			to, err := url.Parse(link)
			require.NoError(t, err, "%s", p.path)
			if to.Scheme != "" || to.Host != "" {
				continue
			}
			count++
			target := p.path
			if to.Path != "" {
				target = filepath.Join(filepath.Dir(p.path), to.Path)
				_, err = os.Stat(filepath.Join(root, target))
				assert.NoError(t, err, "%s links to %s", p.path, link)
			}
			if found, isPage := anchors[target]; isPage && to.Fragment != "" {
				assert.True(t, found[to.Fragment], "%s links to %s, but %s has no such heading", p.path, link, target)
			}
		}
	}
	assert.Greater(t, count, 10, "the pages have links")
}

// A reader who starts at the README finds every page by following links. Decisions are listed by their folder.
func TestEveryPageIsLinkedTo(t *testing.T) {
	byPath := map[string]page{}
	for _, p := range pages(t) {
		byPath[p.path] = p
	}
	reached := map[string]bool{}
	var follow func(path string)
	follow = func(path string) {
		p, isPage := byPath[path]
		if !isPage || reached[path] {
			return
		}
		reached[path] = true
		for _, link := range p.links() {
			if to, err := url.Parse(link); err == nil && to.Scheme == "" && to.Path != "" {
				follow(filepath.Join(filepath.Dir(path), to.Path))
			}
		}
	}
	follow("README.md")
	for path := range byPath {
		if filepath.Dir(path) != filepath.Join("docs", "decisions") {
			assert.True(t, reached[path], "no link leads from README.md to %s: add it to docs/guide/README.md, or to the README", path)
		}
	}
}
