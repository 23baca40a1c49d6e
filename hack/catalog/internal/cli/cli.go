// Package cli is the command line of catalog: flags and wiring, nothing else.
package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/graph"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/history"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/render"
)

// New returns the root command.
func New() *cobra.Command {
	var root string
	command := &cobra.Command{
		Use: "catalog", Short: "The operator's releases and the OLM catalog made of them",
		SilenceUsage: true, SilenceErrors: true,
	}
	command.PersistentFlags().StringVar(&root, "root", ".", "the repository's top folder")
	command.AddCommand(describeCommand(&root), exportCommand(&root), renderCommand(&root))
	return command
}

func describeCommand(root *string) *cobra.Command {
	return &cobra.Command{
		Use: "describe [VERSION]", Short: "Check the list of releases and print one of them as name=value lines", Args: cobra.MaximumNArgs(1),
		Long: "describe prints the version, the commit (empty for the version that the tree is about to become), the date, the\n" +
			"channels and the bundle that it replaces. Without VERSION it is that of the file VERSION.",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, version, err := releases.Read(*root)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				version = strings.TrimPrefix(args[0], "v")
			}
			release, err := list.Find(version)
			if err != nil {
				return err
			}
			describe(cmd.OutOrStdout(), list, release)
			return nil
		},
	}
}

func describe(w io.Writer, list releases.List, release releases.Release) {
	replaces := ""
	// Every release is a candidate, so that channel has all of its predecessors.
	for _, entry := range graph.Of(list.In(releases.Candidate)) {
		if entry.Name == release.BundleName() {
			replaces = entry.Replaces
		}
	}
	fmt.Fprintf(w, "version=%s\ncommit=%s\ndate=%s\nchannels=%s\ndefaultChannel=%s\nreplaces=%s\n", release.Version, release.Commit,
		release.Date, strings.Join(release.Channels, ","), releases.DefaultChannel, replaces)
}

func exportCommand(root *string) *cobra.Command {
	return &cobra.Command{
		Use: "export VERSION FOLDER [PATH...]", Short: "Write the files of a release's commit into a folder", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, _, err := releases.Read(*root)
			if err != nil {
				return err
			}
			release, err := list.Find(strings.TrimPrefix(args[0], "v"))
			if err != nil {
				return err
			}
			if release.Commit == "" {
				return fmt.Errorf("release %s has no commit yet: its files are those of the tree", release.Version)
			}
			err = history.Repository{Root: *root}.Export(cmd.Context(), release.Commit, args[1], args[2:]...)
			if err != nil {
				return fmt.Errorf("release %s: %w", release.Version, err)
			}
			return nil
		},
	}
}

func renderCommand(root *string) *cobra.Command {
	var options render.Options
	command := &cobra.Command{
		Use: "render", Short: "Write the catalog and its template", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Root = *root
			return render.Catalog(cmd.Context(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Images, "images", "registry.example.com/dcnlab", "registry and folder of the bundle images")
	flags.StringVar(&options.OPM, "opm", ".bin/opm", "the program opm")
	return command
}
