package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// containerdName is the annotation from which containerd takes an image's full name.
const containerdName = "io.containerd.image.name"

// FullName returns the name under which container runtimes know the image that people call tag: with
// a registry, a repository and a tag ("latest" when none is given).
func FullName(tag string) (string, error) {
	named, err := reference.ParseNormalizedNamed(tag)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", tag, err)
	}
	if _, digested := named.(reference.Digested); digested {
		return "", fmt.Errorf("image name %q: an image that is built gets a tag, not a digest", tag)
	}
	return reference.TagNameOnly(named).String(), nil
}

// legacyManifest is an entry of manifest.json, the index of "docker save".
type legacyManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// WriteArchive writes the image under the given names as one tar archive that is both an OCI image
// layout and what "docker load" reads.
func (i *Image) WriteArchive(w io.Writer, tags []string) error {
	descriptor, err := partial.Descriptor(i.Image)
	if err != nil {
		return err
	}
	manifest, err := i.Manifest()
	if err != nil {
		return err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	legacy := legacyManifest{Config: blob(manifest.Config.Digest)}
	for _, layer := range manifest.Layers {
		legacy.Layers = append(legacy.Layers, blob(layer.Digest))
	}
	for _, tag := range tags {
		full, err := FullName(tag)
		if err != nil {
			return err
		}
		legacy.RepoTags = append(legacy.RepoTags, full)
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Digest: descriptor.Digest, Size: descriptor.Size,
			Annotations: map[string]string{containerdName: full, "org.opencontainers.image.ref.name": path.Base(full)},
		})
	}
	rawManifest, err := i.RawManifest()
	if err != nil {
		return err
	}
	rawConfig, err := i.RawConfigFile()
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, file := range []struct {
		name    string
		content any
	}{
		{"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}},
		{"index.json", index},
		{"manifest.json", []legacyManifest{legacy}},
		{blob(descriptor.Digest), json.RawMessage(rawManifest)},
		{blob(manifest.Config.Digest), json.RawMessage(rawConfig)},
	} {
		content, raw := file.content.(json.RawMessage) // Marshal would change its whitespace, and so its digest
		if !raw {
			if content, err = json.Marshal(file.content); err != nil {
				return err
			}
		}
		if err := put(archive, file.name, int64(len(content)), bytes.NewReader(content)); err != nil {
			return err
		}
	}
	layers, err := i.Layers()
	if err != nil {
		return err
	}
	for n, layer := range layers {
		content, err := layer.Compressed()
		if err != nil {
			return err
		}
		err = put(archive, legacy.Layers[n], manifest.Layers[n].Size, content)
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return archive.Close()
}

func put(archive *tar.Writer, name string, size int64, content io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: epoch()}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(archive, content)
	return err
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
