// Package render makes the file-based catalog: it takes the bundle of every release out of the repository's history,
// puts their images into a registry on the loopback interface and lets opm render the catalog's template from there.
package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/bundle"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/history"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/mirror"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/template"
)

// Folder is the catalog's folder, and File the catalog, from the repository's top folder.
const (
	Folder = "catalog"
	File   = Folder + "/" + releases.Package + "/catalog.yaml"
)

// Options say where things are.
type Options struct {
	// Root is the repository's top folder.
	Root string
	// Images is the registry and folder of the images, for example registry.example.com/dcnlab.
	Images string
	// OPM is the path of the program opm.
	OPM string
}

// Catalog writes the template and the catalog, and has opm check the result. Neither file is touched when it fails
// before opm has rendered.
func Catalog(ctx context.Context, o Options) (err error) {
	list, _, err := releases.Read(o.Root)
	if err != nil {
		return err
	}
	icon, err := os.ReadFile(filepath.Join(o.Root, template.IconFile))
	if err != nil {
		return fmt.Errorf("icon of the operator: %w", err)
	}
	settings := template.Options{Images: o.Images, Icon: icon}
	text, err := template.Render(list, settings)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "catalog-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	host, _, _ := strings.Cut(o.Images, "/")
	registry, err := mirror.Start(host)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, registry.Close()) }()
	for _, release := range list.Releases {
		if err := push(ctx, o, registry, work, release, settings.BundleImage(release)); err != nil {
			return fmt.Errorf("release %s: %w", release.Version, err)
		}
	}
	rendered, err := o.render(ctx, registry, work, text)
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{template.File: text, File: rendered} {
		if err := write(filepath.Join(o.Root, file), content); err != nil {
			return err
		}
	}
	_, err = o.opm(ctx, nil, "validate", filepath.Join(o.Root, Folder))
	return err
}

// push puts the bundle image of a release into the registry.
func push(ctx context.Context, o Options, registry *mirror.Mirror, work string, release releases.Release, image string) error {
	tree := o.Root
	if release.Commit != "" {
		tree = filepath.Join(work, release.Version)
		if err := (history.Repository{Root: o.Root}).Export(ctx, release.Commit, tree, bundle.Folder); err != nil {
			return err
		}
	}
	opened, err := bundle.Open(filepath.Join(tree, bundle.Folder), release)
	if err != nil {
		return err
	}
	built, err := opened.Image()
	if err != nil {
		return err
	}
	return registry.Push(ctx, built, image)
}

// render has opm render the template.
func (o Options) render(ctx context.Context, registry *mirror.Mirror, work string, text []byte) ([]byte, error) {
	environment, err := registry.Home(filepath.Join(work, "home"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(work, "template.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	return o.opm(ctx, environment, "alpha", "render-template", "basic", file,
		"--output=yaml", "--migrate-level=bundle-object-to-csv-metadata", "--use-http")
}

// opm runs opm and returns what it prints. What it warns of counts as an error, since a sound catalog has no warnings.
func (o Options) opm(ctx context.Context, environment []string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, o.OPM, args...)
	command.Env = append(os.Environ(), environment...)
	var output, messages bytes.Buffer
	command.Stdout, command.Stderr = &output, &messages
	err := command.Run()
	text := strings.TrimSpace(messages.String())
	if err != nil {
		return nil, fmt.Errorf("opm %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	if text != "" {
		return nil, fmt.Errorf("opm %s warned:\n%s", strings.Join(args, " "), text)
	}
	return output.Bytes(), nil
}

// write replaces a file as a whole.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, content, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, path)
}
