package image

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push uploads the image to tag, a name that begins with the host and port of a registry that speaks plain HTTP.
func (i *Image) Push(ctx context.Context, tag string) error {
	reference, err := name.NewTag(tag, name.Insecure)
	if err != nil {
		return fmt.Errorf("image name %q: %w", tag, err)
	}
	if err := remote.Write(reference, i.Image, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push %s: %w", reference, err)
	}
	return nil
}
