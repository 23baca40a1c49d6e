package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is a built image. Its layers are files, which Close removes.
type Image struct {
	v1.Image
	dir string
}

// Close removes the temporary files of the layers.
func (i *Image) Close() error { return os.RemoveAll(i.dir) }

// Build builds the image.
func Build(spec Spec) (built *Image, err error) {
	built = &Image{}
	if built.dir, err = os.MkdirTemp("", "localcluster-image-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = built.Close()
		}
	}()
	var layers []v1.Layer
	if spec.RootFS != "" {
		layer, err := built.rootLayer(spec.RootFS)
		if err != nil {
			return nil, fmt.Errorf("root file system %s: %w", spec.RootFS, err)
		}
		layers = append(layers, layer)
	}
	files, err := spec.files()
	if err != nil {
		return nil, err
	}
	if len(files.entries) > 0 {
		layer, err := built.spool(files.write)
		if err != nil {
			return nil, fmt.Errorf("layer of files: %w", err)
		}
		layers = append(layers, layer)
	}
	built.Image, err = assemble(spec, layers)
	return built, err
}

func assemble(spec Spec, layers []v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	withLayers, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, err
	}
	config, err := withLayers.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: epoch()}
	for i := range config.History {
		config.History[i].Created = config.Created
	}
	env := spec.Env
	if !slices.ContainsFunc(env, func(assignment string) bool { return strings.HasPrefix(assignment, "PATH=") }) {
		env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	}
	config.Config = v1.Config{
		Entrypoint: spec.Entrypoint, Cmd: spec.Cmd, User: spec.User, Env: env, Labels: spec.Labels, WorkingDir: spec.WorkDir,
	}
	configured, err := mutate.ConfigFile(withLayers, config)
	if err != nil || len(spec.Annotations) == 0 {
		return configured, err
	}
	annotated, ok := mutate.Annotations(configured, spec.Annotations).(v1.Image)
	if !ok {
		return nil, errors.New("the annotated image is not an image")
	}
	return annotated, nil
}

// rootLayer makes a layer of a folder or tar file. A plain tar file is used where it is.
func (i *Image) rootLayer(path string) (v1.Layer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return i.spool(func(w *tar.Writer) error { return writeTree(w, path) })
	}
	compressed, err := isGzip(path)
	if err != nil {
		return nil, err
	}
	if compressed {
		return tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
	}
	return plainLayerOf(path)
}
