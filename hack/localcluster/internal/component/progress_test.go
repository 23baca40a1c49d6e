package component

import (
	"fmt"
	"io"
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	p := startProgress(io.Discard, "[2/6] containerd", 3*time.Minute)
	defer p.Stop()
	if got, want := p.line(p.begin.Add(80*time.Second)), "[2/6] containerd: 1m20s so far, usually 3m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	fmt.Fprint(p, "go: downloading k8s.io/api v0.36.3\ngo: downloading k8s.io/client-go v0.36.3\n")
	fmt.Fprint(p, "# get https://proxy.golang.org/k8s.io/api/@v/v0.36.3.zip\n# get https://proxy.golang.org/k8s.io/api/@v/v0.36.3.zip: 200 OK (0.1s)\n")
	if got, want := p.line(p.begin.Add(2*time.Minute)), "[2/6] containerd: 2m so far, usually 3m, 3 modules downloaded"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.usual = 0
	if got, want := p.line(p.begin.Add(40*time.Second)), "[2/6] containerd: 40s so far, 3 modules downloaded"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
