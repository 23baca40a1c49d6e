package store

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// acknowledged is how many bytes the other side of a connection has received.
func acknowledged(conn net.Conn) uint64 {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	control, err := raw.SyscallConn()
	if err != nil {
		return 0
	}
	var bytes uint64
	_ = control.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			bytes = info.Bytes_acked
		}
	})
	return bytes
}
