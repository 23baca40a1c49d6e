//go:build !linux

package store

import "net"

// acknowledged is not known here; the agent's image is for Linux.
func acknowledged(net.Conn) uint64 { return 0 }
