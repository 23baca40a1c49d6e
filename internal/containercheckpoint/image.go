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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// annotationContainer in the manifest is what makes an image a checkpoint for container runtimes (checkpointctl's
// convention): the name of the container.
const annotationContainer = "org.criu.checkpoint.container.name"

// pushes is how often it is tried to push an image when the registry or the way there fails: at once, after 2 s and after 4 s.
var pushes = wait.Backoff{Steps: 3, Duration: 2 * time.Second, Factor: 2}

// push sends the archive of a container as the only layer of an image. It is compressed on its way and never held in memory.
func (w *work) push(ctx context.Context, t target, keys authn.Keychain) error {
	ctx, cancel := context.WithTimeout(ctx, w.agent.PushTimeout)
	defer cancel()
	again := func(err error) bool { return ctx.Err() == nil && mayPass(err) }
	// A layer that was begun cannot be read again, so the whole is made again.
	return retry.OnError(pushes, again, func() error { return w.pushOnce(ctx, t, keys) })
}

// mayPass says whether trying again is of use.
func mayPass(err error) bool {
	var refused *transport.Error
	if errors.As(err, &refused) {
		return refused.Temporary() || refused.StatusCode >= http.StatusInternalServerError
	}
	return !errors.Is(err, errPlain) && !errors.Is(err, errLocal) && !errors.Is(err, errElsewhere) && !errors.Is(err, os.ErrNotExist)
}

func (w *work) pushOnce(ctx context.Context, t target, keys authn.Keychain) error {
	file, err := os.Open(w.path(t.container))
	if err != nil {
		return fmt.Errorf("open the archive: %w", err)
	}
	defer func() { _ = file.Close() }()
	// Pages of zeros, which are many in memory, take next to no time at this level.
	layer := stream.NewLayer(file, stream.WithCompressionLevel(gzip.BestSpeed), stream.WithMediaType(types.OCILayer))
	whole, err := w.assemble(layer, t.container)
	if err != nil {
		return err
	}
	transport := w.agent.Insecure.transport(t.image.RegistryStr())
	defer transport.CloseIdleConnections()
	return remote.Write(t.image, whole,
		remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithJobs(1),
		remote.WithTransport(transport), remote.WithUserAgent("spot-checkpoint-agent"))
}

func (w *work) assemble(layer v1.Layer, container string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created, pod := v1.Time{Time: w.files[container].at.UTC()}, w.pod.Namespace+"/"+w.pod.Name
	base, err := mutate.ConfigFile(base, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", Created: created,
		Config: v1.Config{Labels: map[string]string{
			annotationContainer:                      container,
			"training.dcnlab.com/checkpoint-of-pod":  pod,
			"training.dcnlab.com/checkpoint-on-node": w.agent.Node,
		}},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("make the image's configuration: %w", err)
	}
	whole, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: created, CreatedBy: "checkpoint of container " + container + " of pod " + pod},
	})
	if err != nil {
		return nil, fmt.Errorf("make the image: %w", err)
	}
	annotated, ok := mutate.Annotations(whole, map[string]string{
		annotationContainer:                container,
		"org.opencontainers.image.created": created.Format(time.RFC3339),
	}).(v1.Image)
	if !ok {
		return nil, errors.New("make the image: annotating it makes no image of it")
	}
	return annotated, nil
}
