package containercheckpoint

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/stream"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// annotationContainer in the manifest is what makes an image a checkpoint for container runtimes (checkpointctl's
// convention): the name of the container.
const annotationContainer = "org.criu.checkpoint.container.name"

// image is an image to be pushed: an archive as its only layer.
type image struct {
	target

	path    string
	size    int64
	created time.Time
	pod     string
	node    string
}

// pushes is how often it is tried to push an image when the registry or the way there fails.
const pushes = 3

// push sends the image. The archive is compressed on its way and never held in memory.
func (i image) push(ctx context.Context, keys authn.Keychain, timeout time.Duration, insecure Insecure) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	for try := range pushes {
		if try > 0 {
			select {
			case <-ctx.Done():
				return errors.Join(err, ctx.Err())
			case <-time.After(time.Duration(try) * 2 * time.Second):
			}
		}
		// A layer that was begun cannot be read again, so the whole is made again.
		if err = i.pushOnce(ctx, keys, insecure); err == nil || !mayPass(err) {
			return err
		}
	}
	return err
}

// mayPass says whether trying again is of use.
func mayPass(err error) bool {
	var refused *transport.Error
	if errors.As(err, &refused) {
		return refused.Temporary() || refused.StatusCode >= http.StatusInternalServerError
	}
	return !errors.Is(err, errPlain) && !errors.Is(err, os.ErrNotExist)
}

func (i image) pushOnce(ctx context.Context, keys authn.Keychain, insecure Insecure) error {
	file, err := os.Open(i.path)
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Pages of zeros, which are many in memory, take next to no time at this level.
	layer := stream.NewLayer(file, stream.WithCompressionLevel(gzip.BestSpeed), stream.WithMediaType(types.OCILayer))
	whole, err := i.assemble(layer)
	if err != nil {
		return err
	}
	return remote.Write(i.target.image, whole,
		remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithJobs(1),
		remote.WithTransport(insecure.guard(remote.DefaultTransport)), remote.WithUserAgent("spot-checkpoint-agent"))
}

func (i image) assemble(layer v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: i.created.UTC()}
	base, err := mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", Created: created,
		Config: v1.Config{Labels: map[string]string{
			annotationContainer:                      i.container,
			"training.dcnlab.com/checkpoint-of-pod":  i.pod,
			"training.dcnlab.com/checkpoint-on-node": i.node,
		}},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("make the image's configuration: %w", err)
	}
	whole, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: created, CreatedBy: "checkpoint of container " + i.container + " of pod " + i.pod},
	})
	if err != nil {
		return nil, fmt.Errorf("make the image: %w", err)
	}
	annotated, ok := mutate.Annotations(whole, map[string]string{
		annotationContainer:                i.container,
		"org.opencontainers.image.created": i.created.UTC().Format(time.RFC3339),
	}).(v1.Image)
	if !ok {
		return nil, errors.New("make the image: annotating it makes no image of it")
	}
	return annotated, nil
}
