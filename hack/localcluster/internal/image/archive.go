package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"

	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
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

// WriteArchive writes the image under the given names as one tar archive that is both an OCI image
// layout and what "docker load" reads.
func (i *Image) WriteArchive(w io.Writer, tags []string) error {
	archive := tar.NewWriter(w)
	put := func(file string, size int64, content io.Reader) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: size, ModTime: epoch()}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := io.Copy(archive, content)
		return err
	}
	putBytes := func(file string, content []byte) error {
		return put(file, int64(len(content)), bytes.NewReader(content))
	}
	putJSON := func(file string, v any) error {
		content, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return putBytes(file, content)
	}

	index, legacy, err := i.indexes(tags)
	if err != nil {
		return err
	}
	if err := putJSON("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}
	if err := putJSON("index.json", index); err != nil {
		return err
	}
	if err := putJSON("manifest.json", legacy); err != nil {
		return err
	}
	if err := i.putBlobs(put, putBytes); err != nil {
		return err
	}
	return archive.Close()
}

// legacyManifest is an entry of manifest.json, the index of "docker save".
type legacyManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// indexes returns the two tables of contents of the archive.
func (i *Image) indexes(tags []string) (v1.IndexManifest, []legacyManifest, error) {
	fail := func(err error) (v1.IndexManifest, []legacyManifest, error) { return v1.IndexManifest{}, nil, err }
	raw, err := i.RawManifest()
	if err != nil {
		return fail(err)
	}
	digest, err := i.Digest()
	if err != nil {
		return fail(err)
	}
	manifest, err := i.Manifest()
	if err != nil {
		return fail(err)
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	legacy := legacyManifest{Config: blob(manifest.Config.Digest)}
	for _, layer := range manifest.Layers {
		legacy.Layers = append(legacy.Layers, blob(layer.Digest))
	}
	for _, tag := range tags {
		full, err := FullName(tag)
		if err != nil {
			return fail(err)
		}
		legacy.RepoTags = append(legacy.RepoTags, full)
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Digest: digest, Size: int64(len(raw)),
			Annotations: map[string]string{containerdName: full, "org.opencontainers.image.ref.name": path.Base(full)},
		})
	}
	return index, []legacyManifest{legacy}, nil
}

func (i *Image) putBlobs(put func(string, int64, io.Reader) error, putBytes func(string, []byte) error) error {
	digest, err := i.Digest()
	if err != nil {
		return err
	}
	manifest, err := i.RawManifest()
	if err != nil {
		return err
	}
	configDigest, err := i.ConfigName()
	if err != nil {
		return err
	}
	config, err := i.RawConfigFile()
	if err != nil {
		return err
	}
	if err := putBytes(blob(digest), manifest); err != nil {
		return err
	}
	if err := putBytes(blob(configDigest), config); err != nil {
		return err
	}
	layers, err := i.Layers()
	if err != nil {
		return err
	}
	for _, layer := range layers {
		if err := putLayer(layer, put); err != nil {
			return err
		}
	}
	return nil
}

func putLayer(layer v1.Layer, put func(string, int64, io.Reader) error) error {
	digest, err := layer.Digest()
	if err != nil {
		return err
	}
	size, err := layer.Size()
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	return put(blob(digest), size, content)
}

func blob(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
