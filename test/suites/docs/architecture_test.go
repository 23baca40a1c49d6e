package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark/ast"
	extension "github.com/yuin/goldmark/extension/ast"
)

// The map names files that exist, and is kept complete enough to be of use.
func TestArchitectureIsAMap(t *testing.T) {
	const path = "ARCHITECTURE.md"
	source, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	p := parsePage(path, source)

	isPath := regexp.MustCompile(`^[a-z]+(\.go$|/)`)
	p.walk(func(node ast.Node) {
		if code, ok := node.(*ast.CodeSpan); ok && isPath.MatchString(plain(code, source)) {
			_, err := os.Stat(filepath.Join(root, plain(code, source)))
			assert.NoError(t, err)
		}
	})

	behaviours, words := 0, []string{}
	for _, row := range p.rows("Where a behaviour is decided") {
		if row[1] != "" {
			behaviours++
		}
	}
	assert.GreaterOrEqual(t, behaviours, 40, "behaviours")
	for _, row := range p.rows("Glossary") {
		words = append(words, strings.ToLower(row[0]))
	}
	assert.GreaterOrEqual(t, len(words), 40, "words of the glossary")
	assert.IsIncreasing(t, words, "the glossary has each word once, in order")
}

// rows are the cells of the tables below a heading, without the tables' headers.
func (p page) rows(heading string) [][]string {
	var found [][]string
	below := false
	p.walk(func(node ast.Node) {
		switch n := node.(type) {
		case *ast.Heading:
			below = plain(n, p.source) == heading
		case *extension.TableRow:
			if !below {
				return
			}
			var cells []string
			for cell := n.FirstChild(); cell != nil; cell = cell.NextSibling() {
				cells = append(cells, plain(cell, p.source))
			}
			found = append(found, cells)
		}
	})
	return found
}
