package image

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push uploads the image to the plain HTTP registry at host:port and returns the reference to pull it
// by. A tag that already begins with the registry is taken as it is.
func (i *Image) Push(ctx context.Context, registry, tag string) (string, error) {
	reference, err := name.NewTag(registry+"/"+strings.TrimPrefix(tag, registry+"/"), name.Insecure)
	if err != nil {
		return "", fmt.Errorf("image name %q: %w", tag, err)
	}
	if err := remote.Write(reference, i.Image, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	return reference.String(), nil
}
