package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is one Markdown file.
type page struct {
	// path from the root of the repository.
	path   string
	source []byte
	tree   ast.Node
}

// block is one fenced block of code.
type block struct {
	// info are the words after the fence.
	info []string
	text string
	// line of the file at which the text begins.
	line int
	// quotes are what the text after the block, up to the next heading or YAML, has in fences, block quotes and code spans.
	quotes []string
}

// pages reads the pages at the root of the repository, and everything under docs.
func pages(t *testing.T) []page {
	t.Helper()
	files, err := fs.Glob(os.DirFS(root), "*.md")
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			path, err = filepath.Rel(root, path)
			files = append(files, path)
		}
		return err
	}))
	var all []page
	for _, file := range files {
		source, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		all = append(all, parsePage(file, source))
	}
	return all
}

func parsePage(path string, source []byte) page {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	return page{path: path, source: source, tree: markdown.Parser().Parse(text.NewReader(source))}
}

// blocks returns the fenced blocks in order.
func (p page) blocks() []block {
	var found []block
	p.walk(func(node ast.Node) {
		switch n := node.(type) {
		case *ast.FencedCodeBlock:
			b := block{text: string(n.Lines().Value(p.source))}
			if n.Info != nil {
				b.info = strings.Fields(string(n.Info.Value(p.source)))
			}
			if n.Lines().Len() > 0 {
				b.line = 1 + strings.Count(string(p.source[:n.Lines().At(0).Start]), "\n")
			}
			if len(found) > 0 && !b.isYAML() {
				found[len(found)-1].addQuote(b.text)
				if !found[len(found)-1].isYAML() {
					found = append(found, b)
				}
				return
			}
			found = append(found, b)
		case *ast.CodeSpan:
			if len(found) > 0 {
				found[len(found)-1].addQuote(plain(n, p.source))
			}
		case *ast.Blockquote:
			if len(found) > 0 {
				found[len(found)-1].addQuote(plain(n, p.source))
			}
		case *ast.Heading:
			if len(found) > 0 {
				found = append(found, block{}) // what follows quotes nothing of the block before
			}
		}
	})
	return found
}

func (b *block) addQuote(quote string) {
	if strings.TrimSpace(quote) != "" {
		b.quotes = append(b.quotes, quote)
	}
}

func (b block) isYAML() bool {
	return len(b.info) > 0 && (b.info[0] == "yaml" || b.info[0] == "yml")
}

func (b block) isMarked(mark string) bool {
	for _, word := range b.info[1:] {
		if word == mark {
			return true
		}
	}
	return false
}

// anchors are the fragments by which the headings of the page can be linked to, as GitHub and GitLab make them.
func (p page) anchors() map[string]bool {
	found := map[string]bool{}
	p.walk(func(node ast.Node) {
		if heading, ok := node.(*ast.Heading); ok {
			slug := strings.ToLower(strings.TrimSpace(plain(heading, p.source)))
			found[strings.ReplaceAll(notInSlugs.ReplaceAllString(slug, ""), " ", "-")] = true
		}
	})
	for _, match := range htmlAnchor.FindAllSubmatch(p.source, -1) {
		found[string(match[1])] = true
	}
	return found
}

var (
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	htmlAnchor = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// links returns the destinations of all links and images.
func (p page) links() []string {
	var found []string
	p.walk(func(node ast.Node) {
		switch n := node.(type) {
		case *ast.Link:
			found = append(found, string(n.Destination))
		case *ast.Image:
			found = append(found, string(n.Destination))
		}
	})
	return found
}

func (p page) walk(visit func(ast.Node)) {
	_ = ast.Walk(p.tree, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(node)
		}
		return ast.WalkContinue, nil
	})
}

// plain is the text below a node without its markup.
func plain(node ast.Node, source []byte) string {
	var words strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				words.Write(n.Value(source))
				if n.SoftLineBreak() || n.HardLineBreak() {
					words.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				words.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return words.String()
}
