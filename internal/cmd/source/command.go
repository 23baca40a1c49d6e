// Package source is the subcommands around the code of jobs, spec.source: those by which users prepare it, and that of the init container
// that fetches it.
package source

import "github.com/spf13/cobra"

// New returns the subcommand.
func New() *cobra.Command {
	command := &cobra.Command{
		Use:   "source",
		Short: "Prepare the code of a job for spec.source",
		Args:  cobra.NoArgs,
	}
	command.AddCommand(newPack(), newGit(), newFetch())
	return command
}
