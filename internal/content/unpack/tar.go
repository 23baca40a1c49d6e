package unpack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// The first bytes of files.
const (
	magicGzip = "\x1f\x8b"
	magicZstd = "\x28\xb5\x2f\xfd"
	magicZip  = "PK\x03\x04"
	magicNone = "PK\x05\x06" // a zip file without files
)

const (
	// zstdWindow bounds the memory for zstd. Only its levels above 19 need more than 8 MiB, and only with --ultra.
	zstdWindow = 32 << 20
	blockBytes = 512
)

// Tar unpacks a tar stream, which may be compressed by gzip or zstd. Of several entries with one name the last counts.
func (t *Tree) Tar(r io.Reader) error { return t.tar(r, t.entry) }

// tar calls write for each entry of a tar stream.
func (t *Tree) tar(r io.Reader, write func(*tar.Header, io.Reader) error) error {
	source := &remembering{reader: r}
	stream, err := decompress(source)
	if err != nil {
		return source.describe(err)
	}
	defer func() { _ = stream.Close() }()
	buffered := bufio.NewReader(stream)
	if _, err := buffered.Peek(blockBytes); errors.Is(err, io.EOF) { // short, but not cut off
		return invalid("the source is no tar, tar.gz, tar.zst or zip file: pack it as one")
	}
	content := &remembering{reader: buffered}
	archive := tar.NewReader(content)
	for first := true; ; first = false {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && content.ended: // without the blocks of zeros at the end
			return source.describe(io.ErrUnexpectedEOF)
		case errors.Is(err, io.EOF):
			// What follows has the checksums of gzip and zstd.
			_, err = io.Copy(io.Discard, &counted{content, t, source.describe})
			return err
		case errors.Is(err, tar.ErrInsecurePath): // checked below
		case first && errors.Is(err, tar.ErrHeader) && source.err == nil:
			return invalid("the source is no tar, tar.gz, tar.zst or zip file: pack it as one")
		case err != nil:
			return source.describe(err)
		}
		if err := write(header, &counted{archive, t, source.describe}); err != nil {
			return err
		}
	}
}

// entry writes one entry.
func (t *Tree) entry(header *tar.Header, content io.Reader) error {
	name := header.Name
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.file(name, header.Mode&0o100 != 0, content)
	case tar.TypeDir:
		return t.directory(name)
	case tar.TypeSymlink:
		return t.Link(name, header.Linkname)
	case tar.TypeXGlobalHeader: // of git archive, with the commit
		return t.count(&t.skipped)
	case tar.TypeLink:
		return invalid("the entry %s is a hard link: pack the archive with a copy of the file", show(name))
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return invalid("the entry %s is a device or a pipe: pack the archive without it", show(name))
	default:
		return invalid("the entry %s is of the unknown type %q: pack the archive without it", show(name), header.Typeflag)
	}
}

// decompress reads what a stream of gzip or zstd has, or the stream itself.
func decompress(r io.Reader) (io.ReadCloser, error) {
	buffered := bufio.NewReader(r)
	first, err := buffered.Peek(len(magicZstd))
	switch {
	case err != nil && err != io.EOF: // only a stream that is short
		return nil, err
	case bytes.HasPrefix(first, []byte(magicGzip)):
		return gzip.NewReader(buffered)
	case bytes.HasPrefix(first, []byte(magicZstd)):
		decoder, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	default:
		return io.NopCloser(buffered), nil
	}
}

// remembering remembers the error or the end of a reader, in order to distinguish a connection that breaks from an archive that is damaged.
type remembering struct {
	reader io.Reader
	err    error
	ended  bool
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	if r.ended = err == io.EOF; err != nil && !r.ended { // a wrapped one is no end
		r.err = err
	}
	return n, err
}

// describe says what an error means that occurred in what was read from the reader.
func (r *remembering) describe(err error) error {
	switch {
	case r.err != nil:
		return fmt.Errorf("read the source: %w", r.err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return invalid("the archive ends too early: upload it again")
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return invalid("the archive needs more than %s to be decompressed: compress it without --ultra and --long", size(zstdWindow))
	default:
		return invalid("the archive is damaged (%v): upload it again", err)
	}
}
