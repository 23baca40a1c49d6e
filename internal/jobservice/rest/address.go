package rest

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// clientAddress is where a request comes from: what its connection says, and where that is a trusted proxy, what the proxy says. Of IPv6 it
// is the network, because a client has all of its addresses.
func (s *service) clientAddress(r *http.Request) string {
	address, ok := parseAddress(r.RemoteAddr)
	if !ok {
		return "address"
	}
	// Each proxy appends where it has the request from. What comes before the first that is not trusted may be made up.
	forwarded := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(forwarded) - 1; i >= 0 && s.trusts(address); i-- {
		next, ok := parseAddress(strings.TrimSpace(forwarded[i]))
		if !ok {
			break
		}
		address = next
	}
	if address.Is6() {
		prefix, _ := address.WithZone("").Prefix(64)
		return "address " + prefix.String()
	}
	return "address " + address.String()
}

// parseAddress with or without a port.
func parseAddress(text string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	address, err := netip.ParseAddr(text)
	return address.Unmap(), err == nil
}

func (s *service) trusts(address netip.Addr) bool {
	for i := range s.TrustedProxies {
		if s.TrustedProxies[i].Contains(address.AsSlice()) {
			return true
		}
	}
	return false
}
