package host

import (
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestMountsBelow(t *testing.T) {
	const list = `22 27 0:21 / /proc rw - proc proc rw
40 27 0:50 / /state/data/kubelet/pods/a/volumes/x rw - tmpfs tmpfs rw
41 27 0:51 / /state/run/containerd/with\040blank rw - overlay overlay rw
42 27 0:52 / /state-of-another/run rw - overlay overlay rw
43 27 0:53 / /state rw - ext4 /dev/vdb rw
44 41 0:54 / /state/run/containerd/with\040blank/inner rw - tmpfs tmpfs rw
`
	want := []string{"/state/data/kubelet/pods/a/volumes/x", "/state/run/containerd/with blank", "/state/run/containerd/with blank/inner"}
	points, err := mountinfo.GetMountsFromReader(strings.NewReader(list), below("/state"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, point := range points {
		got = append(got, point.Mountpoint)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
