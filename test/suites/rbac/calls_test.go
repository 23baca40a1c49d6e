package rbac_test

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path of the product's module.
const module = "github.com/dcnlab/spot-training-operator"

// call is a place in the code that calls the API server.
type call struct {
	file     string // from the module's folder
	function string
	method   string
	line     int
	column   int
}

// String is the same for calls of one method in one function, which ask for the same permission.
func (c call) String() string { return c.method + " in " + c.function + " of " + c.file }

// apiMethods are the methods of controller-runtime's clients, and functions that call them for several controllers. Their first argument is the context; so named, other
// methods of these names are not taken for calls.
var apiMethods = []string{"Get", "Find", "Object", "Matching", "List", "Watch", "Create", "Update", "Patch", "Apply", "Delete", "DeleteAllOf"}

// otherPrograms are folders of agents, which have service accounts of their own or none: tests beside them hold them to their rights.
var otherPrograms = map[string]bool{
	"internal/trainingcheckpoint": true, "internal/nodenotice/watcher": true, "internal/containercheckpoint": true, "internal/jobservice": true,
	"internal/cmd/checkpointagent": true,
}

// callsOfTheAPIServer finds them in the controllers and in what these use.
func callsOfTheAPIServer(t *testing.T) []call {
	t.Helper()
	var calls []call
	for _, folder := range []string{"controllers", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && otherPrograms[filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))] {
				return filepath.SkipDir
			}
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			found, err := callsIn(path)
			calls = append(calls, found...)
			return err
		})
		require.NoError(t, err)
	}
	return calls
}

func callsIn(path string) ([]call, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	var calls []call
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(function, func(node ast.Node) bool {
			expression, ok := node.(*ast.CallExpr)
			if !ok || len(expression.Args) == 0 {
				return true
			}
			called := expression.Fun
			if generic, ok := called.(*ast.IndexExpr); ok {
				called = generic.X
			}
			selector, ok := called.(*ast.SelectorExpr)
			first, isName := expression.Args[0].(*ast.Ident)
			if ok && isName && first.Name == "ctx" && slices.Contains(apiMethods, selector.Sel.Name) {
				at := files.Position(expression.Pos())
				calls = append(calls, call{filepath.ToSlash(name), function.Name.Name, selector.Sel.Name, at.Line, at.Column})
			}
			return true
		})
	}
	return calls, nil
}

// blocks are the parts of each file that ran.
type blocks map[string][]block

type block struct{ fromLine, fromColumn, toLine, toColumn int }

// covers says whether the code of a call ran.
func (b blocks) covers(c call) bool {
	for _, ran := range b[c.file] {
		after := c.line > ran.fromLine || c.line == ran.fromLine && c.column >= ran.fromColumn
		before := c.line < ran.toLine || c.line == ran.toLine && c.column <= ran.toColumn
		if after && before {
			return true
		}
	}
	return false
}

// coverage reads the counters that the managers left.
func coverage(t *testing.T, counters string) blocks {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	_, err := run(t, "go", "tool", "covdata", "textfmt", "-i="+counters, "-o="+profile)
	require.NoError(t, err)
	file, err := os.Open(profile)
	require.NoError(t, err)
	defer file.Close()
	ran := blocks{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, rest, ok := strings.Cut(strings.TrimPrefix(lines.Text(), module+"/"), ":")
		if !ok || name == "mode" {
			continue
		}
		var b block
		var statements, count int
		_, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.fromLine, &b.fromColumn, &b.toLine, &b.toColumn, &statements, &count)
		require.NoError(t, err, lines.Text())
		if count > 0 {
			ran[name] = append(ran[name], b)
		}
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, ran, "the managers left no counters")
	return ran
}
