package host

import (
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 01004D0A:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F91 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 100 0 0 10 0
`
	const table6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4714 1
`
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "net"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"tcp": table, "tcp6": table6} {
		if err := os.WriteFile(filepath.Join(proc, "net", name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := listeners(proc)
	if err != nil {
		t.Fatal(err)
	}
	want := []listener{
		{Address: netip.MustParseAddrPort("127.0.0.1:8080"), inode: 4711},
		{Address: netip.MustParseAddrPort("10.77.0.1:6443"), inode: 4712},
		{Address: netip.MustParseAddrPort("[::]:22"), inode: 4714},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConflicts(t *testing.T) {
	tests := []struct {
		have, want string
		conflict   bool
	}{
		{"127.0.0.1:6443", "127.0.0.1:6443", true},
		{"127.0.0.1:6443", "127.0.0.1:6444", false},
		{"127.0.0.1:6443", "10.77.0.1:6443", false},
		{"0.0.0.0:6443", "10.77.0.1:6443", true},
		{"[::]:6443", "10.77.0.1:6443", true},
		{"[::ffff:10.77.0.1]:6443", "10.77.0.1:6443", true},
		{"[::1]:6443", "127.0.0.1:6443", false},
	}
	for _, test := range tests {
		l := listener{Address: netip.MustParseAddrPort(test.have)}
		if got := l.conflicts(netip.MustParseAddrPort(test.want)); got != test.conflict {
			t.Errorf("%s held, %s wanted: conflict %t, want %t", test.have, test.want, got, test.conflict)
		}
	}
}

func TestPortsFreeNamesTheHolder(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := netip.MustParseAddrPort(listener.Addr().String())
	err = PortsFree([]Port{{Purpose: "the API server", Flag: "api-port", Address: address}})
	if err == nil {
		t.Fatal("no error for a port that is taken")
	}
	for _, part := range []string{"the API server", address.Addr().String(), "(host.test)", "--api-port"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestNeedSpace(t *testing.T) {
	dir := t.TempDir()
	if err := NeedSpace(dir+"/not/there/yet", 1, "this test"); err != nil {
		t.Errorf("one byte: %v", err)
	}
	err := NeedSpace(dir, math.MaxInt64, "this test")
	if err == nil || !strings.Contains(err.Error(), "this test needs") {
		t.Errorf("too much: %v", err)
	}
}

func TestMissing(t *testing.T) {
	got := Missing([]Package{{Name: "a", Program: "sh"}, {Name: "b", Program: "/no/such/program"}, {Name: "c", Program: "no-such-program"}})
	if len(got) != 2 || got[0].Name != "b" || got[1].Name != "c" {
		t.Errorf("got %v, want b and c", got)
	}
}

func TestNeedStatic(t *testing.T) {
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := needStatic(text); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("a script: error %v, want one that names it", err)
	}
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for mode, static := range map[string]bool{"exe": true, "pie": false} {
		program := filepath.Join(t.TempDir(), mode)
		build := exec.Command("go", "build", "-buildmode="+mode, "-o", program, source)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if err := needStatic(program); (err == nil) != static {
			t.Errorf("%s: error %v, static: %t", mode, err, static)
		}
	}
}
