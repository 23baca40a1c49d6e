package guest

import (
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

func TestConfigIsKeptOnTheDisk(t *testing.T) {
	disk := t.TempDir()
	if err := MakeFolders(disk); err != nil {
		t.Fatal(err)
	}
	want := Config{Name: "m1", Disk: disk, Address: "10.77.0.2/24", Metadata: "10.77.0.1:8080"}
	if err := host.SaveJSON(filepath.Join(disk, DiskConfig), want); err != nil {
		t.Fatal(err)
	}
	got, err := Load(disk)
	if err != nil || got != want {
		t.Errorf("got %+v, error %v; want %+v", got, err, want)
	}
	for _, dir := range Overlays() {
		if _, err := os.Stat(Upper(disk, dir)); err != nil {
			t.Error(err)
		}
	}
}

func TestSystemctlSpeaksAsKubeadmExpects(t *testing.T) {
	m := &machine{kubelet: &service{name: "kubelet"}, containerd: &service{name: "containerd"}, sshd: &service{name: "sshd"}}
	tests := []struct {
		args   string
		output string
		code   int
	}{
		{"daemon-reload", "", 0},
		{"is-enabled kubelet", "enabled\n", 0},
		{"is-active kubelet.service", "inactive\n", 3},
		{"status kubelet", "Active: inactive", 3},
		{"status --no-pager docker", "could not be found", 4},
		{"stop kubelet", "", 0},
		{"mask kubelet", "not on a localcluster machine", 1},
		{"", "systemctl of a localcluster machine", 1},
	}
	for _, test := range tests {
		got := m.systemctl(strings.Fields(test.args))
		if got.Code != test.code || !strings.Contains(got.Output, test.output) {
			t.Errorf("systemctl %s: %d %q, want %d and %q", test.args, got.Code, got.Output, test.code, test.output)
		}
	}
}

func TestSystemctlIsCalledRemotely(t *testing.T) {
	server := rpc.NewServer()
	if err := server.RegisterName("machine", &machine{kubelet: &service{name: "kubelet"}}); err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go server.ServeConn(far)
	client := rpc.NewClient(near)
	defer client.Close()
	var answer Answer
	if err := client.Call("machine.Systemctl", []string{"is-active", "kubelet"}, &answer); err != nil || answer != (Answer{"inactive\n", 3}) {
		t.Errorf("got %+v, error %v", answer, err)
	}
}

func TestServiceIsKeptRunningUntilItIsStopped(t *testing.T) {
	if err := os.WriteFile("/var/log/guest-test.log", nil, 0o644); err != nil {
		t.Skip("needs to write logs as a machine does:", err)
	}
	defer os.Remove("/var/log/guest-test.log")
	counter := filepath.Join(t.TempDir(), "starts")
	s := &service{name: "guest-test", command: []string{"/bin/sh", "-c", `echo start >>"` + counter + `"; [ "$(wc -l <"` + counter + `")" -lt 2 ] && exit 1; exec sleep 60`}}
	s.start()
	s.start() // twice is once
	deadline := time.Now().Add(20 * time.Second)
	for content := ""; strings.Count(content, "start") < 2 || s.state() != "active"; { // it may start before its state says so
		if time.Now().After(deadline) {
			t.Fatalf("the service was not started again: %q, state %s", content, s.state())
		}
		time.Sleep(10 * time.Millisecond)
		text, _ := os.ReadFile(counter)
		content = string(text)
	}
	s.stop()
	s.stop()
	if state := s.state(); state != "inactive" {
		t.Errorf("state after the stop is %s", state)
	}
}

func TestLinesHaveAPrefix(t *testing.T) {
	var out strings.Builder
	prefixLines(&out, strings.NewReader("one\ntwo"), "startup-script: ")
	if got := out.String(); got != "startup-script: one\nstartup-script: two\n" {
		t.Errorf("got %q", got)
	}
}
