package host

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// UnmountBelow unmounts everything below dir, the last mounted first.
func UnmountBelow(dir string) error {
	// Unmounting may uncover or complete others, so look again until nothing is left.
	for range 5 {
		content, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return err
		}
		points := mountsBelow(string(content), dir)
		if len(points) == 0 {
			return nil
		}
		for _, point := range points {
			// A process may still hold the mount open; detached, it goes with that process.
			if syscall.Unmount(point, 0) != nil {
				_ = syscall.Unmount(point, syscall.MNT_DETACH)
			}
		}
	}
	return fmt.Errorf("some file systems below %s are still mounted", dir)
}

// mountsBelow returns the mount points below dir that mountinfo lists, in the reverse order of mounting.
func mountsBelow(mountinfo, dir string) []string {
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if strings.HasPrefix(point, strings.TrimSuffix(dir, "/")+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points
}

// unescape undoes the octal escapes of blanks and backslashes in mountinfo.
func unescape(text string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(text)
}
