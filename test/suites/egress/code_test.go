package egress_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// openers are the types and functions of libraries by which a program opens connections, or finds out where to. What is made of the
// configuration of an API server, such as the clients of controller-runtime, goes where that says.
var openers = map[string]library{
	"net":                                 {"net", []string{"Dial", "DialIP", "DialTCP", "DialTimeout", "DialUDP", "DialUnix", "Dialer"}},
	"net/http":                            {"http", []string{"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "Transport"}},
	"net/rpc":                             {"rpc", []string{"Dial", "DialHTTP", "DialHTTPPath"}},
	"net/smtp":                            {"smtp", []string{"Dial", "SendMail"}},
	"crypto/tls":                          {"tls", []string{"Dial", "DialWithDialer", "Dialer"}},
	"database/sql":                        {"sql", []string{"Open", "OpenDB"}},
	"golang.org/x/crypto/ssh":             {"ssh", []string{"Dial", "NewClientConn"}},
	"golang.org/x/oauth2/google":          {"google", []string{"DefaultClient", "DefaultTokenSource", "FindDefaultCredentials", "FindDefaultCredentialsWithParams"}},
	"google.golang.org/api/compute/v1":    {"compute", []string{"NewService"}},
	"google.golang.org/grpc":              {"grpc", []string{"Dial", "DialContext", "NewClient"}},
	"cloud.google.com/go/storage":         {"storage", []string{"NewClient", "NewGRPCClient"}},
	"github.com/aws/aws-sdk-go-v2/config": {"config", []string{"LoadDefaultConfig"}},
	"github.com/go-git/go-git/v5":         {"git", []string{"Clone", "CloneContext", "PlainClone", "PlainCloneContext", "NewRemote"}},
	"github.com/go-git/go-git/v5/plumbing/transport/http":  {"http", []string{"DefaultClient", "NewClient", "NewClientWithOptions"}},
	"github.com/go-git/go-git/v5/plumbing/transport/ssh":   {"ssh", []string{"DefaultClient", "NewClient"}},
	"github.com/google/go-containerregistry/pkg/v1/remote": {"remote", []string{"Get", "Head", "Image", "Index"}},
	"github.com/jackc/pgx/v5":                              {"pgx", []string{"Connect", "ConnectConfig", "ConnectWithOptions"}},
	"github.com/jackc/pgx/v5/pgxpool":                      {"pgxpool", []string{"New", "NewWithConfig"}},
	"github.com/redis/go-redis/v9": {"redis", []string{
		"NewClient", "NewClusterClient", "NewFailoverClient", "NewFailoverClusterClient", "NewRing", "NewUniversalClient",
	}},
	"sigs.k8s.io/controller-runtime": {"controllerruntime", []string{"GetConfig", "GetConfigOrDie"}},
	"k8s.io/client-go/rest":          {"rest", []string{"HTTPClientFor", "InClusterConfig", "TransportFor"}},
	"k8s.io/client-go/tools/clientcmd": {"clientcmd", []string{
		"BuildConfigFromFlags", "NewInteractiveDeferredLoadingClientConfig", "NewNonInteractiveDeferredLoadingClientConfig",
	}},
	"k8s.io/client-go/tools/remotecommand":                            {"remotecommand", []string{"NewSPDYExecutor", "NewWebSocketExecutor"}},
	"k8s.io/client-go/tools/portforward":                              {"portforward", []string{"New"}},
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity":                {"azidentity", []string{"NewDefaultAzureCredential", "NewManagedIdentityCredential"}},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": {"otlptracehttp", []string{"New", "NewUnstarted"}},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": {"otlptracegrpc", []string{"New", "NewUnstarted"}},
}

// library is a package by its name, and what of it opens connections.
type library struct {
	name string
	uses []string
}

// withoutNetwork are those that open files.
var withoutNetwork = []string{"internal/jobservice/sqlstore/sqlite.go: sql.Open"}

// What the code opens is listed with what allows it, and what is listed is in the code: a new client, or one that moves, is noticed.
func TestEachConnectionOfTheCodeIsListed(t *testing.T) {
	listed := slices.Clone(withoutNetwork)
	for _, c := range newWorld(pods{namespace: "operators"}, address("10.96.0.1")).connections() {
		listed = append(listed, c.code...)
	}
	slices.Sort(listed)
	assert.Equal(t, slices.Compact(listed), openedByTheCode(t),
		"list the connection in connections_test.go and docs/network-policies.md, and allow it in config/network-policy-egress")
}

// openedByTheCode is what the programs of the operator's image use of openers.
func openedByTheCode(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	root := apiserver.Root()
	inspect := func(file string) {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		relative, err := filepath.Rel(root, file)
		require.NoError(t, err)
		for _, use := range usesOf(t, tree) {
			found[relative+": "+use] = true
		}
	}
	inspect(filepath.Join(root, "main.go"))
	for _, folder := range []string{"api", "controllers", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") {
				inspect(file)
			}
			return err
		}))
	}
	return slices.Sorted(maps.Keys(found))
}

// usesOf are the openers that a file uses, but for pointers to them, such as arguments, which another place has made.
func usesOf(t *testing.T, tree *ast.File) (found []string) {
	t.Helper()
	imported := map[string]library{}
	for _, spec := range tree.Imports {
		from, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		opener, ok := openers[from]
		switch {
		case !ok:
		case spec.Name == nil:
			imported[opener.name] = opener
		default:
			require.NotEqual(t, ".", spec.Name.Name, "%s is imported without a name", from)
			imported[spec.Name.Name] = opener
		}
	}
	pointers := map[ast.Expr]bool{}
	ast.Inspect(tree, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.StarExpr: // also in (*http.Transport), a type assertion
			pointers[n.X] = true
		case *ast.SelectorExpr:
			if name, ok := n.X.(*ast.Ident); ok && !pointers[n] && slices.Contains(imported[name.Name].uses, n.Sel.Name) {
				found = append(found, imported[name.Name].name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}
