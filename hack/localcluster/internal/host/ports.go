package host

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/prometheus/procfs"
)

// listener is a TCP socket that accepts connections.
type listener struct {
	// Address is the address and port it is bound to; the unspecified address stands for all.
	Address netip.AddrPort
	// inode identifies the socket among the open files of processes.
	inode uint64
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
	taken, err := listeners(procfs.DefaultMountPoint)
	if err != nil {
		return err
	}
	for _, port := range ports {
		by := slices.IndexFunc(taken, func(l listener) bool { return l.conflicts(port.Address) })
		if by < 0 {
			continue
		}
		hint := ""
		if port.Flag != "" {
			hint = fmt.Sprintf(", or choose another port with --%s or --port-offset", port.Flag)
		}
		return fmt.Errorf("%s needs TCP port %d on %s, which is held by %s: stop it%s",
			port.Purpose, port.Address.Port(), port.Address.Addr(), holder(taken[by].inode), hint)
	}
	return nil
}

// listeners returns all listening TCP sockets of this network namespace.
//
//nolint:staticcheck // netlink, which the deprecation names, would be faster, which is of no use here, and need another module
func listeners(proc string) ([]listener, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, err
	}
	sockets, err := fs.NetTCP()
	if err != nil {
		return nil, err
	}
	if six, err := fs.NetTCP6(); err == nil { // the kernel may not support IPv6
		sockets = append(sockets, six...)
	}
	var found []listener
	for _, socket := range sockets {
		const listen = 10 // TCP_LISTEN of the kernel
		if address, ok := netip.AddrFromSlice(socket.LocalAddr); ok && socket.St == listen {
			found = append(found, listener{Address: netip.AddrPortFrom(address, uint16(socket.LocalPort)), inode: socket.Inode})
		}
	}
	return found, nil
}

func (l listener) conflicts(address netip.AddrPort) bool {
	if l.Address.Port() != address.Port() {
		return false
	}
	have := l.Address.Addr().Unmap()
	return have.IsUnspecified() || address.Addr().IsUnspecified() || have == address.Addr().Unmap()
}

func holder(inode uint64) string {
	want := fmt.Sprintf("socket:[%d]", inode)
	processes, _ := procfs.AllProcs()
	for _, process := range processes {
		if files, err := process.FileDescriptorTargets(); err == nil && slices.Contains(files, want) {
			name, _ := process.Comm()
			return fmt.Sprintf("process %d (%s)", process.PID, name)
		}
	}
	return "a process that this user may not see"
}
