package rest

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/clientaddress"
)

// clientAddress is where a request comes from: what its connection says, and where that is a trusted proxy, what the proxy says.
func (s *service) clientAddress(r *http.Request) string {
	address, ok := clientaddress.Parse(r.RemoteAddr)
	if !ok {
		return "address"
	}
	// Each proxy appends where it has the request from. What comes before the first that is not trusted may be made up.
	forwarded := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for i := len(forwarded) - 1; i >= 0 && s.trusts(address); i-- {
		next, ok := clientaddress.Parse(strings.TrimSpace(forwarded[i]))
		if !ok {
			break
		}
		address = next
	}
	return "address " + clientaddress.Of(address)
}

func (s *service) trusts(address netip.Addr) bool {
	for i := range s.TrustedProxies {
		if s.TrustedProxies[i].Contains(address.AsSlice()) {
			return true
		}
	}
	return false
}
