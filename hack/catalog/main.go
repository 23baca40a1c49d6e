// Command catalog reads the list of the operator's releases and renders the file-based OLM catalog of them.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "catalog:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
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
		Long: "describe prints the version, the commit (empty for the unreleased version of the tree), the date, the channels and\n" +
			"the bundle that it replaces. VERSION defaults to the content of the file VERSION.",
		RunE: func(cmd *cobra.Command, args []string) error {
			list, version, err := readReleases(*root)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				version = args[0]
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

func describe(w io.Writer, list List, release Release) {
	replaces := ""
	// Channel candidate offers every release, so it has all predecessors.
	for _, entry := range upgradeGraph(list.In(Candidate)) {
		if entry.Name == release.BundleName() {
			replaces = entry.Replaces
		}
	}
	fmt.Fprintf(w, "version=%s\ncommit=%s\ndate=%s\nchannels=%s\ndefaultChannel=%s\nreplaces=%s\n", release.Version, release.Commit,
		release.Date, strings.Join(release.Channels, ","), DefaultChannel, replaces)
}

func exportCommand(root *string) *cobra.Command {
	return &cobra.Command{
		Use: "export VERSION FOLDER [PATH...]", Short: "Write the files of a release's commit into a folder", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, _, err := readReleases(*root)
			if err != nil {
				return err
			}
			release, err := list.Find(args[0])
			if err != nil {
				return err
			}
			if release.Commit == "" {
				return fmt.Errorf("release %s has no commit yet: its files are those of the tree", release.Version)
			}
			if err := export(cmd.Context(), *root, release.Commit, args[1], args[2:]...); err != nil {
				return fmt.Errorf("release %s: %w", release.Version, err)
			}
			return nil
		},
	}
}

func renderCommand(root *string) *cobra.Command {
	var r renderer
	command := &cobra.Command{
		Use: "render", Short: "Write the catalog", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.root = *root
			return r.Render(cmd.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&r.images, "images", "registry.example.com/dcnlab", "registry and folder of the bundle images")
	flags.StringVar(&r.opm, "opm", ".bin/opm", "path of the program opm")
	return command
}
