// Command spot-training-operator is the one binary of the product; its subcommands are the roles that it plays in a
// cluster.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/internal/cmd/checkpointagent"
	"github.com/dcnlab/spot-training-operator/internal/cmd/containercheckpoint"
	"github.com/dcnlab/spot-training-operator/internal/cmd/jobservice"
	"github.com/dcnlab/spot-training-operator/internal/cmd/manager"
	"github.com/dcnlab/spot-training-operator/internal/cmd/nodeagent"
	"github.com/dcnlab/spot-training-operator/internal/cmd/preflight"
	"github.com/dcnlab/spot-training-operator/internal/cmd/source"
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
	root.AddCommand(manager.New(), checkpointagent.New(), containercheckpoint.New(), nodeagent.New(), jobservice.New(), preflight.New(), source.New())
	if err := root.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "spot-training-operator:", err)
		os.Exit(exitCode(err))
	}
}

// exitCode is 1, unless the command wants another: the codes of containers in a training's pods have meanings.
func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return 1
}
