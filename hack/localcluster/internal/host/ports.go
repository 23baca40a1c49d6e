package host

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// procRoot is where the kernel shows processes and sockets; tests replace it.
var procRoot = "/proc"

// Listener is a TCP socket that accepts connections.
type Listener struct {
	// Address is the address and port it is bound to; the unspecified address stands for all.
	Address netip.AddrPort
	// inode identifies the socket among the open files of processes.
	inode string
}

// Port is a port that is about to be used.
type Port struct {
	// Purpose says what for, in words for the user ("the API server").
	Purpose string
	// Flag is the command line flag that changes it, without dashes; empty when there is none.
	Flag string
	// Address is where it will be bound.
	Address netip.AddrPort
}

// PortsFree returns an error for the first of ports that is taken, naming the process that holds it
// and the flag that changes the port.
func PortsFree(ports []Port) error {
	listeners, err := Listeners()
	if err != nil {
		return err
	}
	for _, port := range ports {
		taken := slices.IndexFunc(listeners, func(l Listener) bool { return l.conflicts(port.Address) })
		if taken < 0 {
			continue
		}
		hint := ""
		if port.Flag != "" {
			hint = fmt.Sprintf(", or choose another port with --%s or --port-offset", port.Flag)
		}
		return fmt.Errorf("%s needs TCP port %d on %s, which is held by %s: stop it%s",
			port.Purpose, port.Address.Port(), port.Address.Addr(), holder(listeners[taken].inode), hint)
	}
	return nil
}

// Listeners returns all listening TCP sockets of this network namespace.
func Listeners() ([]Listener, error) {
	var all []Listener
	for _, name := range []string{"net/tcp", "net/tcp6"} {
		file, err := os.Open(filepath.Join(procRoot, name))
		if err != nil {
			continue // no IPv6 in this kernel
		}
		found, err := parseListeners(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// conflicts reports whether binding to address fails because of this listener.
func (l Listener) conflicts(address netip.AddrPort) bool {
	if l.Address.Port() != address.Port() {
		return false
	}
	have := l.Address.Addr().Unmap()
	return have.IsUnspecified() || address.Addr().IsUnspecified() || have == address.Addr().Unmap()
}

// parseListeners reads the kernel's table of TCP sockets: fields 2 and 4 are local address and state
// (0A is LISTEN), field 10 is the inode.
func parseListeners(table io.Reader) ([]Listener, error) {
	var found []Listener
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != "0A" {
			continue
		}
		address, err := parseAddress(fields[1])
		if err != nil {
			return nil, err
		}
		found = append(found, Listener{Address: address, inode: fields[9]})
	}
	return found, lines.Err()
}

// parseAddress reads "0100007F:1F90": the address in 32-bit words of the machine's (little-endian)
// byte order, then the port.
func parseAddress(text string) (netip.AddrPort, error) {
	host, portText, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port in %q: %w", text, err)
	}
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address in %q: %w", text, err)
	}
	for word := 0; word+4 <= len(raw); word += 4 {
		slices.Reverse(raw[word : word+4])
	}
	address, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address in %q has %d bytes", text, len(raw))
	}
	return netip.AddrPortFrom(address, uint16(port)), nil
}

// holder names the process that has the socket open.
func holder(inode string) string {
	want := "socket:[" + inode + "]"
	files, _ := filepath.Glob(filepath.Join(procRoot, "[0-9]*/fd/*"))
	for _, file := range files {
		if target, err := os.Readlink(file); err != nil || target != want {
			continue
		}
		process := filepath.Dir(filepath.Dir(file))
		name, _ := os.ReadFile(filepath.Join(process, "comm"))
		return fmt.Sprintf("process %s (%s)", filepath.Base(process), strings.TrimSpace(string(name)))
	}
	return "a process that this user may not see"
}
