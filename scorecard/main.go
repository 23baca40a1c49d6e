// Command scorecard holds the operator's own tests for operator-sdk's scorecard, beside its basic and olm suites. Each
// test is a subcommand, runs in a pod of the operator's cluster, and prints its result as the JSON that the scorecard
// reads. docs/scorecard.md describes them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/checks"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func main() {
	// The pod's log must contain nothing but the result.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	// The scorecard stops slow pods by SIGTERM; they must still delete what they created.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand(os.Stdout).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scorecard:", err)
		os.Exit(1)
	}
}

// options are the flags of the command.
type options struct {
	bundle    string
	namespace string
}

func newCommand(out io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:           "scorecard TEST",
		Short:         "Run one test of the operator's scorecard and print its result as JSON",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			return printStatus(out, cluster.Status(strings.Join(args, " "), "", unknown(args)))
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.bundle, "bundle", "/bundle", "folder of the OLM bundle")
	flags.StringVar(&o.namespace, "namespace", os.Getenv("SCORECARD_NAMESPACE"),
		"namespace in which the test may create objects (environment: SCORECARD_NAMESPACE)")
	for _, test := range checks.All() {
		root.AddCommand(&cobra.Command{
			Use: test.Name, Short: test.Question, Args: cobra.NoArgs,
			RunE: func(command *cobra.Command, _ []string) error {
				return printStatus(out, test.Execute(command.Context(), o.open))
			},
		})
	}
	root.AddCommand(&cobra.Command{
		Use: "list", Short: "List the tests", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return list(out) },
	})
	return root
}

// open connects a test to the bundle and to the cluster of the pod, or of KUBECONFIG.
func (o options) open() (*cluster.Env, error) {
	tested, err := cluster.ReadBundle(o.bundle)
	if err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return cluster.Open(config, tested, o.namespace)
}

func unknown(args []string) error {
	var names []string
	for _, test := range checks.All() {
		names = append(names, test.Name)
	}
	return fmt.Errorf("there is no test %q: name one of %s", strings.Join(args, " "), strings.Join(names, ", "))
}

func printStatus(out io.Writer, status v1alpha3.TestStatus) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(status); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	return nil
}

func list(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SUITE\tTEST\tQUESTION")
	for _, test := range checks.All() {
		fmt.Fprintf(table, "%s\t%s\t%s\n", test.Suite(), test.Name, test.Question)
	}
	return table.Flush()
}
