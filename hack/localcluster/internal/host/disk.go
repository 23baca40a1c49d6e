package host

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// GiB is 2^30 bytes.
const GiB = 1 << 30

// NeedSpace returns an error that names the numbers when the file system of dir, or of its nearest
// existing parent, has less than need bytes free.
func NeedSpace(dir string, need uint64, purpose string) error {
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("look up free space of %s: %w", dir, err)
	}
	free := stat.Bavail * uint64(stat.Bsize)
	if free >= need {
		return nil
	}
	return fmt.Errorf("%s needs %.1f GiB free on the file system of %s, which has %.1f GiB: make room or choose another folder",
		purpose, float64(need)/GiB, dir, float64(free)/GiB)
}
