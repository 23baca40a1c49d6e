package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// criuSuite is the Debian release whose CRIU is taken: that of the release before fails on kernels from 6.13 on, whose vdso
// it cannot read.
const criuSuite = "trixie"

// CRIU makes a criu of Debian in the folder bin, which runs on any system, and returns its path. One that is there stays.
// Container runtimes look it up by this name.
func CRIU(ctx context.Context, bin string, out io.Writer) (string, error) {
	wrapper, files := filepath.Join(bin, "criu"), filepath.Join(bin, "criu.files")
	if exec.CommandContext(ctx, wrapper, "--version").Run() == nil {
		return wrapper, WriteFile(wrapper, []byte(criuWrapper), 0o755)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("CRIU is taken from a root file system, which needs root to make: use sudo")
	}
	if err := Install(ctx, []Package{{Name: "mmdebstrap", Program: "mmdebstrap"}}, out); err != nil {
		return "", err
	}
	root, err := os.MkdirTemp("", "criu-root-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(root)
	fmt.Fprintf(out, "fetching CRIU from Debian %s\n", criuSuite)
	if err := Run(ctx, "mmdebstrap", "--quiet", "--variant=minbase", "--include=criu", criuSuite, root); err != nil {
		return "", err
	}
	if err := os.RemoveAll(files); err != nil {
		return "", err
	}
	if err := keepCRIU(ctx, root, files); err != nil {
		return "", err
	}
	if err := WriteFile(wrapper, []byte(criuWrapper), 0o755); err != nil {
		return "", err
	}
	version, err := exec.CommandContext(ctx, wrapper, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("the fetched CRIU does not run: %w\n%s", err, version)
	}
	fmt.Fprintln(out, strings.ReplaceAll(strings.TrimSpace(string(version)), "\n", ", "))
	return wrapper, nil
}

// criuWrapper runs CRIU with the libraries of its own release. It finds them beside itself, since the folder may move. Without the variable
// CRIU sets hardware breakpoints, and waits forever on virtual machines whose hypervisor has none; from 4.2 on it finds that out by
// itself (https://github.com/checkpoint-restore/criu/pull/2660).
const criuWrapper = `#!/bin/sh
files=$(dirname "$(readlink -f "$0")")/criu.files
export CRIU_FAULT=130
exec "$files/ld.so" --library-path "$files" "$files/criu" "$@"
`

// keepCRIU copies CRIU, the loader and the shared libraries from a root file system.
func keepCRIU(ctx context.Context, root, files string) error {
	if err := os.MkdirAll(files, 0o755); err != nil {
		return err
	}
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("the root file system has not one loader of programs but %d", len(loaders))
	}
	libraries, err := filepath.Glob(filepath.Join(filepath.Dir(loaders[0]), "*.so*"))
	if err != nil {
		return err
	}
	libraries = slices.DeleteFunc(libraries, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || !info.Mode().IsRegular() || path == loaders[0]
	})
	return errors.Join(
		Run(ctx, "install", "-T", filepath.Join(root, "usr/sbin/criu"), filepath.Join(files, "criu")),
		Run(ctx, "install", "-T", loaders[0], filepath.Join(files, "ld.so")),
		Run(ctx, "install", append([]string{"-t", files}, libraries...)...),
	)
}
