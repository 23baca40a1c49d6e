package host

import (
	"slices"
	"testing"
)

func TestMountsBelow(t *testing.T) {
	const mountinfo = `22 27 0:21 / /proc rw - proc proc rw
40 27 0:50 / /state/data/kubelet/pods/a/volumes/x rw - tmpfs tmpfs rw
41 27 0:51 / /state/run/containerd/with\040blank rw - overlay overlay rw
42 27 0:52 / /state-of-another/run rw - overlay overlay rw
43 27 0:53 / /state rw - ext4 /dev/vdb rw
44 41 0:54 / /state/run/containerd/with\040blank/inner rw - tmpfs tmpfs rw
`
	want := []string{"/state/run/containerd/with blank/inner", "/state/run/containerd/with blank", "/state/data/kubelet/pods/a/volumes/x"}
	if got := mountsBelow(mountinfo, "/state"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
