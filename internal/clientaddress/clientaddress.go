// Package clientaddress tells the clients of a server apart by their addresses.
package clientaddress

import (
	"net"
	"net/netip"
)

// Parse reads an address with or without a port; false when it is none.
func Parse(text string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	address, err := netip.ParseAddr(text)
	return address.Unmap(), err == nil
}

// Of is what a client is counted by: its address, or of IPv6 the network, because a client has all of its addresses.
func Of(address netip.Addr) string {
	if address.Is6() {
		prefix, _ := address.WithZone("").Prefix(64)
		return prefix.String()
	}
	return address.String()
}
