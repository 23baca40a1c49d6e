package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
)

// upstreamNameservers returns the name servers that file names, to which names outside the cluster
// are forwarded. Loopback addresses are left out: they may lead back to this cluster's own server.
func upstreamNameservers(file string) []string {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var servers []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		address, err := netip.ParseAddr(fields[1])
		if err != nil || address.IsLoopback() || address.Zone() != "" {
			continue
		}
		servers = append(servers, address.String())
	}
	return servers
}

func lookup(ctx context.Context, server, name string) error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, net.JoinHostPort(server, "53"))
	}}
	addresses, err := resolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	if len(addresses) == 0 {
		return errors.New("no address for " + name)
	}
	return nil
}
