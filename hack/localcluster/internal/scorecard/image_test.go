package scorecard

import "testing"

func TestImageHoldsWhatOperatorSDKRuns(t *testing.T) {
	s := spec(t.TempDir(), "/bin/busybox")
	if len(s.Entrypoint) > 0 {
		t.Errorf("entrypoint %v, but operator-sdk gives whole commands as arguments", s.Entrypoint)
	}
	paths := map[string]bool{}
	for _, file := range s.Files {
		paths[file.Path] = true
	}
	for _, want := range []string{"/usr/local/bin/scorecard-test", "/bin/tar", "/bin/sh", "/bin/sleep"} {
		if !paths[want] {
			t.Errorf("no %s", want)
		}
	}
}
