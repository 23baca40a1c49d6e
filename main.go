// Command spot-training-operator is the one binary of the product; its subcommands are the roles that it plays in a
// cluster.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/cmd/manager"
)

// version of the product; the build sets it.
var version = "dev"

func main() {
	root := &cobra.Command{
		Version:       version,
		Use:           "spot-training-operator",
		Short:         "Train machine-learning models on Kubernetes and keep them alive on spot instances",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(manager.New())
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "spot-training-operator:", err)
		os.Exit(1)
	}
}
