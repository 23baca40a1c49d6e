package bundle

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is the bundle's image, the same that bundle.Dockerfile describes: the folders manifests, metadata and tests at
// the top, and the labels. Equal bundles give equal images.
func (b Bundle) Image() (v1.Image, error) {
	content, err := archive(b.folder)
	if err != nil {
		return nil, fmt.Errorf("pack the bundle: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("layer of the bundle: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("image of the bundle: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64" // nothing in it runs, but an image must name a platform
	config.Config.Labels = b.Labels()
	return mutate.ConfigFile(image, config)
}

// archive packs a folder without what depends on when and by whom it was written.
func archive(folder string) ([]byte, error) {
	var content bytes.Buffer
	writer := tar.NewWriter(&content)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(name), ModTime: time.Unix(0, 0).UTC()}
		if entry.IsDir() {
			header.Typeflag, header.Mode, header.Name = tar.TypeDir, 0o755, header.Name+"/"
			return writer.WriteHeader(header)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header.Typeflag, header.Mode, header.Size = tar.TypeReg, 0o644, int64(len(data))
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		_, err = writer.Write(data)
		return err
	})
	if err != nil {
		return nil, err
	}
	return content.Bytes(), writer.Close()
}
