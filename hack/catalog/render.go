package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Paths from the repository's top folder.
const (
	catalogFolder = "catalog"
	catalogFile   = catalogFolder + "/" + Package + "/catalog.yaml"
	bundleFolder  = "bundle"
	iconFile      = "config/manifests/icon.svg"
)

const description = "Trains machine-learning models on Kubernetes and keeps the training alive: workers form one process group, " +
	"are restarted from the newest checkpoint when one fails or is taken away, and show their progress in the job's status."

// renderer has opm render the catalog from the bundle of every release.
type renderer struct {
	// root is the repository's top folder.
	root string
	// images is the registry and folder of the bundle images, for example registry.example.com/dcnlab. They need not exist.
	images string
	// opm is the path of the program opm.
	opm string
}

// Render writes the catalog and has opm validate it. The file is not touched when rendering fails.
func (r renderer) Render(ctx context.Context) (err error) {
	list, _, err := readReleases(r.root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "catalog-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	head := filepath.Join(work, "head")
	if err := r.writeHead(list, filepath.Join(head, "head.yaml")); err != nil {
		return err
	}
	args := []string{
		"render", "--output=yaml", "--migrate-level=bundle-object-to-csv-metadata",
		"--alpha-image-ref-template=" + r.images + "/{{.Package}}-bundle:v{{.Version}}", head,
	}
	for _, release := range list.Releases {
		folder, err := r.bundle(ctx, release, work)
		if err != nil {
			return fmt.Errorf("release %s: %w", release.Version, err)
		}
		args = append(args, folder)
	}
	rendered, err := r.run(ctx, args...)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(r.root, catalogFile), rendered); err != nil {
		return err
	}
	_, err = r.run(ctx, "validate", filepath.Join(r.root, catalogFolder))
	return err
}

// writeHead writes what the list of releases decides: the package, the channels and the deprecations.
func (r renderer) writeHead(list List, path string) error {
	type object = map[string]any
	icon, err := os.ReadFile(filepath.Join(r.root, iconFile))
	if err != nil {
		return fmt.Errorf("icon of the operator: %w", err)
	}
	blobs := []object{{
		"schema": "olm.package", "name": Package, "defaultChannel": DefaultChannel, "description": description,
		"icon": object{"base64data": base64.StdEncoding.EncodeToString(icon), "mediatype": "image/svg+xml"},
	}}
	for _, name := range Channels() {
		if offered := list.In(name); len(offered) > 0 {
			blobs = append(blobs, object{"schema": "olm.channel", "package": Package, "name": name, "entries": upgradeGraph(offered)})
		}
	}
	var deprecations []object
	for _, release := range list.Releases {
		if release.Deprecated != "" {
			reference := object{"schema": "olm.bundle", "name": release.BundleName()}
			deprecations = append(deprecations, object{"reference": reference, "message": release.Deprecated})
		}
	}
	if len(deprecations) > 0 { // the schema forbids an empty list
		blobs = append(blobs, object{"schema": "olm.deprecations", "package": Package, "entries": deprecations})
	}
	var text bytes.Buffer
	for _, blob := range blobs {
		document, err := yaml.Marshal(blob)
		if err != nil {
			return fmt.Errorf("write the catalog's channels: %w", err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	return write(path, text.Bytes())
}

// bundle returns the folder of a release's bundle: exported from its commit, or the tree's own.
func (r renderer) bundle(ctx context.Context, release Release, work string) (string, error) {
	tree, remedy := r.root, "run make bundle"
	if release.Commit != "" {
		tree, remedy = filepath.Join(work, release.Version), "record another commit in "+releasesFile
		if err := export(ctx, r.root, release.Commit, tree, bundleFolder); err != nil {
			return "", err
		}
	}
	folder := filepath.Join(tree, bundleFolder)
	data, err := os.ReadFile(filepath.Join(folder, "manifests", Package+".clusterserviceversion.yaml"))
	if err != nil {
		return "", fmt.Errorf("read the bundle: %w", err)
	}
	var csv struct {
		Metadata struct{ Name string }
		Spec     struct{ Version string }
	}
	if err := yaml.Unmarshal(data, &csv); err != nil {
		return "", fmt.Errorf("read the bundle: %w", err)
	}
	if csv.Metadata.Name != release.BundleName() || csv.Spec.Version != release.Version {
		return "", fmt.Errorf("the bundle is %s (version %s), not %s: %s", csv.Metadata.Name, csv.Spec.Version, release.BundleName(), remedy)
	}
	return folder, nil
}

// run runs opm and returns its output. A warning counts as an error, since a sound catalog has none.
func (r renderer) run(ctx context.Context, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, r.opm, args...)
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

// write replaces a file atomically.
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
