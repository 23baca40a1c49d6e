// Package cli is the command line of localcluster: flags and wiring, nothing else.
package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/olm"
)

type folders struct{ source, state, bin string }

// New returns the root command.
func New() *cobra.Command {
	var f folders
	root := &cobra.Command{
		Use:   "localcluster",
		Short: "A one-node Kubernetes cluster of plain processes, built from source",
		Long: "localcluster builds the programs of Kubernetes from Go modules and runs them as processes of this machine:\n" +
			"as root with a node that runs pods, or with simulated nodes (SIMULATE=1) for tests of control loops at scale.",
		SilenceUsage: true, SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&f.source, "source", os.Getenv("LOCALCLUSTER_SOURCE"),
		"folder of the component modules; default: hack/localcluster/components of the repository around the current folder [LOCALCLUSTER_SOURCE]")
	flags.StringVar(&f.state, "state", os.Getenv("LOCALCLUSTER_STATE"),
		"folder that holds everything of the cluster; default: .localcluster in the repository [LOCALCLUSTER_STATE]")
	flags.StringVar(&f.bin, "bin", os.Getenv("LOCALCLUSTER_BIN"),
		"folder of the programs, which clusters can share; default: .localcluster/bin in the repository [LOCALCLUSTER_BIN]")
	root.AddCommand(
		upCommand(&f), downCommand(&f), statusCommand(&f), kubeconfigCommand(&f),
		loadImageCommand(&f), buildImageCommand(&f), binariesCommand(&f), criuCommand(&f), prepareDepsCommand(&f), provisionerCommand(),
		toolsCommand(&f), programsCommand(&f), registriesConfCommand(&f), scorecardImageCommand(&f), machineCommand(&f),
		olmCommand(&f, "olm", "the Operator Lifecycle Manager (v0)", olm.New),
		olmCommand(&f, "olmv1", "the second generation of the Operator Lifecycle Manager", olm.NewV1),
	)
	return root
}

// layout finds the folders that were not given.
func (f folders) layout() (cluster.Layout, error) {
	source, err := f.components()
	if err != nil {
		return cluster.Layout{}, err
	}
	home := filepath.Join(source, "..", "..", "..", ".localcluster")
	if f.state == "" {
		f.state = home
	}
	if f.bin == "" {
		f.bin = filepath.Join(home, "bin")
	}
	state, err := realPath(f.state)
	if err != nil {
		return cluster.Layout{}, err
	}
	bin, err := realPath(f.bin)
	if err != nil {
		return cluster.Layout{}, err
	}
	return cluster.Layout{Source: source, State: state, Bin: bin}, nil
}

// realPath makes path absolute and resolves the links in the part of it that exists, because that is how
// the kernel will name the mounts below it.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		resolved, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(resolved, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// components finds the component modules: where the flag says, else in a parent of the current folder
// or of this executable.
func (f folders) components() (string, error) {
	if f.source != "" {
		return filepath.Abs(f.source)
	}
	var starts []string
	if here, err := os.Getwd(); err == nil {
		starts = append(starts, here)
	}
	if self, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(self))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			candidate := filepath.Join(dir, "hack", "localcluster", "components")
			if info, err := os.Stat(candidate); err == nil && info.IsDir() {
				return candidate, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("cannot find hack/localcluster/components: run this inside the repository or give --source")
}

// open returns the cluster of the state folder with the options it runs with.
func (f folders) open() (cluster.Cluster, error) {
	layout, err := f.layout()
	if err != nil {
		return cluster.Cluster{}, err
	}
	return cluster.Running(layout)
}

func (f *folders) onLayout(run func(ctx context.Context, layout cluster.Layout) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		layout, err := f.layout()
		if err != nil {
			return err
		}
		return run(cmd.Context(), layout)
	}
}

func (f *folders) onCluster(run func(ctx context.Context, c cluster.Cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := f.open()
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
}

// assign takes assignments name=value, one in each call.
func assign(values map[string]string) func(assignment string) error {
	return func(assignment string) error {
		name, value, ok := strings.Cut(assignment, "=")
		if !ok || name == "" {
			return errors.New("want name=value")
		}
		values[name] = value
		return nil
	}
}
