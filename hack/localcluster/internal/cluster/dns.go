package cluster

import (
	"context"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// upstreamNameservers returns the name servers that file names, to which names outside the cluster
// are forwarded. Loopback addresses are left out: they may lead back to this cluster's own server.
func upstreamNameservers(file string) []string {
	config, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil
	}
	var servers []string
	for _, server := range config.Servers {
		if address, err := netip.ParseAddr(server); err == nil && !address.IsLoopback() && address.Zone() == "" {
			servers = append(servers, server)
		}
	}
	return servers
}

func lookup(ctx context.Context, server, name string) error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, net.JoinHostPort(server, "53"))
	}}
	_, err := resolver.LookupHost(ctx, name)
	return err
}
