package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/dcnlab/spot-training-operator/"

// A page describes every condition, event and metric that a user may meet.
func TestPagesNameWhatTheCodeSays(t *testing.T) {
	var text strings.Builder
	for _, p := range pages(t) {
		// Decisions and the changelog describe the past, and the reference repeats the comments of the code.
		if folder := filepath.Base(filepath.Dir(p.path)); folder != "decisions" && folder != "reference" && p.path != "CHANGELOG.md" {
			text.Write(p.source)
		}
	}
	known := map[string]bool{}
	for _, word := range regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`).FindAllString(text.String(), -1) {
		known[word] = true
	}
	code := readCode(t)
	for _, test := range []struct {
		what  string
		names map[string]string
		// witness is a name that is known to be among them, so that the search is known to find something.
		witness string
	}{
		{"condition or reason", code.reasons(), "BackoffLimitExceeded"},
		{"event", code.events(), "StorageMigrated"},
		{"metric", code.metrics(), "trainingjob_progress_percent"},
	} {
		require.Contains(t, test.names, test.witness, "the search for a %s in the code", test.what)
		var missing []string
		for name, where := range test.names {
			// A condition of a pod has a prefix, as labels have: it is not one word.
			prefixed := strings.Contains(name, "/") && strings.Contains(text.String(), "`"+name+"`")
			if !known[name] && !prefixed {
				missing = append(missing, name+" of "+where)
			}
		}
		slices.Sort(missing)
		assert.Empty(t, missing, "each %s is on a page", test.what)
	}
}

// code is the source of the product without its tests.
type code struct {
	files []sourceFile
	// constants are the values of string constants by folder and name.
	constants map[string]string
}

type sourceFile struct {
	// path from the root of the repository.
	path    string
	syntax  *ast.File
	imports map[string]string
}

func readCode(t *testing.T) code {
	t.Helper()
	c := code{constants: map[string]string{}}
	for _, folder := range []string{"api", "controllers", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			syntax, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			path, err = filepath.Rel(root, path)
			file := sourceFile{path: path, syntax: syntax, imports: map[string]string{}}
			for _, spec := range syntax.Imports {
				target, _ := strconv.Unquote(spec.Path.Value)
				name := filepath.Base(target)
				if spec.Name != nil {
					name = spec.Name.Name
				}
				file.imports[name] = strings.TrimPrefix(target, module)
			}
			c.files = append(c.files, file)
			c.readConstants(file)
			return err
		}))
	}
	return c
}

func (c code) readConstants(file sourceFile) {
	ast.Inspect(file.syntax, func(node ast.Node) bool {
		if declaration, ok := node.(*ast.GenDecl); !ok || declaration.Tok != token.CONST {
			return true
		}
		for _, spec := range node.(*ast.GenDecl).Specs {
			values := spec.(*ast.ValueSpec)
			for i, name := range values.Names {
				if i < len(values.Values) {
					if value, ok := literal(values.Values[i]); ok {
						c.constants[filepath.Dir(file.path)+"."+name.Name] = value
					}
				}
			}
		}
		return true
	})
}

// reasons are the values of the constants of package api/reasons, and of those elsewhere named Condition... and Reason..., that code
// outside the API uses: users do not see what nothing sets yet.
func (c code) reasons() map[string]string {
	named := regexp.MustCompile(`^([Rr]eason|Condition)[A-Z]`)
	return c.used(func(name string, shared bool) bool {
		return named.MatchString(name) || shared && !strings.HasPrefix(name, "Event")
	})
}

// used are the values of the constants that code outside the API uses, of those that are wanted; shared says that one is of
// package api/reasons.
func (c code) used(wanted func(name string, shared bool) bool) map[string]string {
	found := map[string]string{}
	for _, file := range c.files {
		if strings.HasPrefix(file.path, "api/") {
			continue
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			if declaration, ok := node.(*ast.GenDecl); ok && declaration.Tok == token.CONST {
				return false
			}
			if expr, ok := node.(ast.Expr); ok {
				if name, value, ok := c.constant(file, expr); ok && wanted(name, isShared(file, expr)) {
					found[value] = file.path
				}
			}
			return true
		})
	}
	return found
}

// isShared says whether an expression names something of package api/reasons.
func isShared(file sourceFile, expr ast.Expr) bool {
	selector, ok := expr.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && file.imports[from.Name] == "api/reasons"
}

// events are the reasons of events: constants of package api/reasons named Event..., and the argument, or the field of a literal, that
// follows corev1.EventTypeNormal or EventTypeWarning.
func (c code) events() map[string]string {
	found := c.used(func(name string, shared bool) bool { return shared && strings.HasPrefix(name, "Event") })
	for _, file := range c.files {
		take := func(list []ast.Expr) {
			for i := 1; i < len(list); i++ {
				kind, ok := list[i-1].(*ast.SelectorExpr)
				if !ok || (kind.Sel.Name != "EventTypeNormal" && kind.Sel.Name != "EventTypeWarning") {
					continue
				}
				if value, ok := literal(list[i]); ok {
					found[value] = file.path
				} else if _, value, ok := c.constant(file, list[i]); ok {
					found[value] = file.path
				}
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				take(n.Args)
			case *ast.CompositeLit:
				var values []ast.Expr
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Action" {
							continue
						}
						element = pair.Value
					}
					values = append(values, element)
				}
				take(values)
			case *ast.ReturnStmt:
				take(n.Results)
			}
			return true
		})
	}
	return found
}

// metrics are the names of Prometheus series: in files that use Prometheus' client, a name that is followed by its help in
// a call, or stands in the field Name of options.
func (c code) metrics() map[string]string {
	series := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)+$`)
	found := map[string]string{}
	for _, file := range c.files {
		if file.imports["prometheus"] == "" {
			continue
		}
		add := func(expr ast.Expr) {
			if name, ok := literal(expr); ok && series.MatchString(name) {
				found[name] = file.path
			}
		}
		// addDescribed takes names that a text about them follows.
		addDescribed := func(all []ast.Expr) {
			for i := 1; i < len(all); i++ {
				if help, ok := literal(all[i]); ok && strings.Contains(help, " ") {
					add(all[i-1])
				}
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.CallExpr:
				addDescribed(n.Args)
			case *ast.CompositeLit:
				addDescribed(n.Elts)
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Name" {
					add(n.Value)
				}
			}
			return true
		})
	}
	return found
}

// constant returns the name and the value of the string constant of the product that an expression is.
func (c code) constant(file sourceFile, expr ast.Expr) (name, value string, ok bool) {
	switch e := expr.(type) {
	case *ast.Ident:
		value, ok = c.constants[filepath.Dir(file.path)+"."+e.Name]
		return e.Name, value, ok
	case *ast.SelectorExpr:
		if from, isName := e.X.(*ast.Ident); isName {
			value, ok = c.constants[file.imports[from.Name]+"."+e.Sel.Name]
			return e.Sel.Name, value, ok
		}
	}
	return "", "", false
}

func literal(expr ast.Expr) (string, bool) {
	basic, ok := expr.(*ast.BasicLit)
	if !ok || basic.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(basic.Value)
	return value, err == nil
}
