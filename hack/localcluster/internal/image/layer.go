package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// plainLayer is a layer that is not compressed: on one machine, compressing gigabytes takes far longer
// than copying them.
type plainLayer struct {
	path   string
	digest v1.Hash
	size   int64
}

var _ v1.Layer = plainLayer{}

// Digest is the hash of the layer's file.
func (l plainLayer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID is the hash of the uncompressed layer, which is the same.
func (l plainLayer) DiffID() (v1.Hash, error) { return l.digest, nil }

// Compressed returns the layer's content as it is transferred.
func (l plainLayer) Compressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Uncompressed returns the layer's tar archive.
func (l plainLayer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Size is the number of bytes of the layer's file.
func (l plainLayer) Size() (int64, error) { return l.size, nil }

// MediaType says that the layer is a plain tar archive.
func (l plainLayer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }

// spool writes a layer into a temporary file, hashing it on the way.
func (i *Image) spool(write func(*tar.Writer) error) (layer v1.Layer, err error) {
	file, err := os.CreateTemp(i.dir, "*.tar")
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<20)
	archive := tar.NewWriter(buffered)
	err = write(archive)
	err = errors.Join(err, archive.Close(), buffered.Flush())
	info, statErr := file.Stat()
	if err := errors.Join(err, statErr, file.Close()); err != nil {
		return nil, err
	}
	return plainLayer{path: file.Name(), digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}, size: info.Size()}, nil
}

func plainLayerOf(path string) (v1.Layer, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	digest, size, err := v1.SHA256(file)
	return plainLayer{path: path, digest: digest, size: size}, err
}

func isGzip(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, 2)
	if _, err := io.ReadFull(file, head); err != nil {
		return false, err
	}
	return bytes.Equal(head, []byte{0x1f, 0x8b}), nil
}

// epoch is the time given to everything made here: the start of Unix time, or SOURCE_DATE_EPOCH
// (seconds since then), the usual variable of reproducible builds.
func epoch() time.Time {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		seconds = 0
	}
	return time.Unix(seconds, 0).UTC()
}
