package component

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// Builder builds components into a folder.
type Builder struct {
	// Source is the folder that holds the component folders.
	Source string
	// Bin receives the programs.
	Bin string
	// Out receives the progress, one line at a time.
	Out io.Writer
}

// Ensure builds those of components that are missing in Bin or were built from something else, one
// after the other, each using all cores. Two callers with the same Bin take turns at a component.
func (b Builder) Ensure(ctx context.Context, components []Component) error {
	goVersion, err := b.goVersion(ctx)
	if err != nil {
		return err
	}
	// Looking needs no lock and no right to write, so a folder of another user will do when it is complete.
	if outdated, err := b.outdated(components, goVersion); err != nil || len(outdated) == 0 {
		return err
	}
	for i, c := range components {
		if err := b.ensure(ctx, c, goVersion, fmt.Sprintf("[%d/%d]", i+1, len(components))); err != nil {
			return err
		}
	}
	return nil
}

// ensure builds a component unless another process has built it meanwhile.
func (b Builder) ensure(ctx context.Context, c Component, goVersion, step string) error {
	unlock, err := host.Lock(stampFile(b.Bin, c.Name+".lock"), func() error {
		fmt.Fprintf(b.Out, "%s waiting for another build of %s in %s\n", step, c.Name, b.Bin)
		return nil
	})
	if err != nil {
		return err
	}
	defer unlock()
	if outdated, err := b.outdated([]Component{c}, goVersion); err != nil || len(outdated) == 0 {
		return err
	}
	return b.build(ctx, c, goVersion, step)
}

func (b Builder) outdated(components []Component, goVersion string) (outdated []Component, err error) {
	for _, c := range components {
		stamp, err := c.Stamp(filepath.Join(b.Source, c.Name), goVersion)
		if err != nil {
			return nil, err
		}
		if !c.Current(b.Bin, stamp) {
			outdated = append(outdated, c)
		}
	}
	return outdated, nil
}

// Download fetches the modules of components into the module cache, so that later builds need no network.
func (b Builder) Download(ctx context.Context, components []Component) error {
	for i, c := range components {
		step := fmt.Sprintf("[%d/%d] modules of %s", i+1, len(components), c.Name)
		fmt.Fprintln(b.Out, step)
		progress := startProgress(b.Out, step, 0)
		_, err := b.output(ctx, c, progress, "mod", "download", "-x")
		progress.Stop()
		if err != nil {
			return fmt.Errorf("download modules of %s: %w", c.Name, err)
		}
	}
	return nil
}

// ModuleDir returns the folder of the component's main module in the module cache, where its manifests are, and
// downloads it when it is not there.
func (b Builder) ModuleDir(ctx context.Context, c Component) (string, error) {
	output, err := b.output(ctx, c, io.Discard, "mod", "download", "-json", c.Module)
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", c.Module, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		return "", fmt.Errorf("find module %s: %w", c.Module, err)
	}
	if module.Dir == "" {
		return "", fmt.Errorf("find module %s: go mod download names no folder", c.Module)
	}
	return module.Dir, nil
}

// build builds all programs of one component and makes their links, and its stamp at last.
func (b Builder) build(ctx context.Context, c Component, goVersion, step string) error {
	source := filepath.Join(b.Source, c.Name)
	version, err := c.Version(source)
	if err != nil {
		return err
	}
	stamp, err := c.Stamp(source, goVersion)
	if err != nil {
		return err
	}
	what := step + " " + c.Name
	fmt.Fprintf(b.Out, "%s building %s %s%s\n", step, c.Name, version, usually(" (usually %s on 2 cores)", c.FirstBuild))
	begin := time.Now()
	progress := startProgress(b.Out, what, c.FirstBuild)
	defer progress.Stop()

	_ = os.Remove(stampFile(b.Bin, c.Name)) // a stopped build must not look complete
	for _, program := range c.Programs {
		partial := filepath.Join(b.Bin, "."+program.Name+".partial")
		if _, err := b.output(ctx, c, progress, c.buildArgs(program, version, partial)...); err != nil {
			return fmt.Errorf("build %s of %s %s: %w", program.Name, c.Name, version, err)
		}
		if err := os.Rename(partial, filepath.Join(b.Bin, program.Name)); err != nil {
			return err
		}
		for _, link := range program.Links {
			if err := replaceLink(program.Name, filepath.Join(b.Bin, link)); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(b.Out, "%s built in %s\n", what, time.Since(begin).Round(time.Second))
	return os.WriteFile(stampFile(b.Bin, c.Name), []byte(stamp+"\n"), 0o644)
}

// buildArgs are the arguments of the go command that builds program to the file output: without
// local paths and symbol tables, so that equal sources give equal and small files.
func (c Component) buildArgs(program Program, version, output string) []string {
	flags := []string{"-s", "-w"}
	for _, variable := range c.VersionVariables {
		flags = append(flags, "-X", c.Module+"/"+variable+"="+version)
	}
	if c.LinkFlags != nil {
		flags = append(flags, c.LinkFlags(version)...)
	}
	args := []string{"build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", strings.Join(flags, " ")}
	if len(c.Tags) > 0 {
		args = append(args, "-tags", strings.Join(c.Tags, ","))
	}
	return append(args, "-o", output, program.Package)
}

// output runs the go command in the component's folder and returns its standard output. Its standard error goes to progress,
// and with the output into the error when it fails.
func (b Builder) output(ctx context.Context, c Component, progress io.Writer, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.Source, c.Name)
	// A go.work of the caller must not change what is built, and static programs run anywhere. Compilers live for seconds: collecting
	// garbage is of little use to them. What only debuggers need would cost a sixth of their time, and the linker drops it.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOGC=1000", "GOFLAGS=-gcflags=all=-dwarf=false")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, progress)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, host.Tail(stdout.String()+stderr.String(), 30))
	}
	return stdout.Bytes(), nil
}

func (b Builder) goVersion(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("the go command is needed to build the cluster's programs and is not on the PATH: install Go 1.26 or newer")
	}
	if err != nil {
		return "", fmt.Errorf("go env GOVERSION: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}

// replaceLink makes link a symbolic link to target, whatever it was before.
func replaceLink(target, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, link)
}
