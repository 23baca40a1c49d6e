package host

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
)

// UnmountBelow unmounts everything below dir, the last mounted first.
func UnmountBelow(dir string) error {
	// Unmounting may uncover or complete others, so look again until nothing is left.
	for range 5 {
		points, err := mountinfo.GetMounts(below(dir))
		if err != nil {
			return err
		}
		if len(points) == 0 {
			return nil
		}
		slices.Reverse(points)
		for _, point := range points {
			// A process may still hold the mount open; detached, it goes with that process.
			if syscall.Unmount(point.Mountpoint, 0) != nil {
				_ = syscall.Unmount(point.Mountpoint, syscall.MNT_DETACH)
			}
		}
	}
	return fmt.Errorf("some file systems below %s are still mounted", dir)
}

// below leaves out the mount points that are not below dir.
func below(dir string) mountinfo.FilterFunc {
	return func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, strings.TrimSuffix(dir, "/")+"/"), false
	}
}
