// Package site_test builds the documentation site, and checks that every link, anchor and image of it leads somewhere.
//
// BIN is the folder of Hugo and Mermaid, .bin by default. The test is skipped where they are missing; make test builds them.
package site_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

const (
	root = "../../../.."
	// onGitHub is where links lead to files of the repository that the site does not have.
	onGitHub = "https://github.com/dcnlab/spot-training-operator/blob/main/"
)

func TestSite(t *testing.T) {
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	bin := cmp.Or(os.Getenv("BIN"), filepath.Join(repository, ".bin"))
	mermaid := filepath.Join(bin, "mermaid/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js")
	for _, needed := range []string{filepath.Join(bin, "hugo"), mermaid} {
		if _, err := os.Stat(needed); err != nil {
			t.Skipf("run make site first: %v", err)
		}
	}
	folder := t.TempDir()
	command := exec.CommandContext(t.Context(), filepath.Join(repository, "hack/site.sh"), folder)
	command.Env = append(os.Environ(), "BIN="+bin)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	site := read(t, folder)

	t.Run("every link leads somewhere", func(t *testing.T) {
		count := 0
		for path, p := range site {
			for _, link := range p.links {
				if file, ok := strings.CutPrefix(link, onGitHub); ok {
					file, _, _ = strings.Cut(file, "#")
					_, err := os.Stat(filepath.Join(root, file))
					assert.NoError(t, err, "%s links to %s", path, link)
					continue
				}
				to, err := url.Parse(link)
				require.NoError(t, err, "%s", path)
				if to.Scheme != "" || to.Host != "" {
					continue
				}
				count++
				target := path
				if to.Path != "" {
					target = filepath.Join(filepath.Dir(path), to.Path)
				}
				found, ok := site[target]
				if assert.True(t, ok, "%s links to %s, which the site does not have", path, link) && to.Fragment != "" {
					assert.True(t, found.ids[to.Fragment], "%s links to %s, but %s has no such anchor", path, link, target)
				}
			}
		}
		assert.Greater(t, count, 1000, "the pages have links")
	})

	t.Run("every page of docs/ is there, and in the navigation", func(t *testing.T) {
		require.NoError(t, fs.WalkDir(os.DirFS(filepath.Join(root, "docs")), ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
				return err
			}
			name := strings.TrimSuffix(path, ".md") + ".html"
			if filepath.Base(path) == "README.md" {
				name = filepath.Join(filepath.Dir(path), "index.html")
			}
			assert.Contains(t, site, name, "docs/%s: a README.md has an entry of its own in site/hugo.yaml", path)
			assert.Contains(t, site["index.html"].links, "./"+name)
			return nil
		}))
	})

	t.Run("every diagram can be drawn", func(t *testing.T) {
		var diagrams []string
		for _, p := range site {
			diagrams = append(diagrams, p.diagrams...)
		}
		require.NotEmpty(t, diagrams)
		input, err := json.Marshal(diagrams)
		require.NoError(t, err)
		node := exec.CommandContext(t.Context(), "node", "testdata/parse.js", mermaid)
		node.Stdin = bytes.NewReader(input)
		output, err := node.CombinedOutput()
		assert.NoError(t, err, "%s", output)
	})
}

// page is a file of the site; one that is not HTML has no content.
type page struct {
	ids             map[string]bool
	links, diagrams []string
}

// read returns the files of the site by their path.
func read(t *testing.T, folder string) map[string]page {
	t.Helper()
	site := map[string]page{}
	require.NoError(t, fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		site[path] = page{}
		if filepath.Ext(path) == ".html" {
			text, err := os.ReadFile(filepath.Join(folder, path))
			require.NoError(t, err)
			tree, err := html.Parse(bytes.NewReader(text))
			require.NoError(t, err)
			site[path] = pageOf(tree)
		}
		return nil
	}))
	return site
}

func pageOf(tree *html.Node) page {
	p := page{ids: map[string]bool{}}
	for node := range tree.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id", "name":
				p.ids[attribute.Val] = true
			case "href", "src":
				p.links = append(p.links, attribute.Val)
			case "class":
				if node.Data == "pre" && attribute.Val == "mermaid" {
					p.diagrams = append(p.diagrams, node.FirstChild.Data)
				}
			}
		}
	}
	return p
}
