package host

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
)

// Busybox returns the path of a busybox that runs in an image of its own, where its file under the names cp, tar and
// sh is these programs. It installs the Debian package when there is none.
func Busybox(ctx context.Context, out io.Writer) (string, error) {
	if err := Install(ctx, ImagePackages(), out); err != nil {
		return "", err
	}
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", err
	}
	return path, needStatic(path)
}

// needStatic returns an error unless the program at path runs without any library or loader, as one in an image
// that holds nothing else must.
func needStatic(path string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is not a Linux program: %w", path, err)
	}
	defer file.Close()
	for _, section := range file.Progs {
		if section.Type == elf.PT_INTERP {
			return fmt.Errorf("%s needs libraries and cannot run in an image of its own: install the Debian package busybox-static instead", path)
		}
	}
	return nil
}
