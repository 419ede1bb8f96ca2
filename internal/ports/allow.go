package ports

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Allowed is the set of hosts and ports that may be connected to. The zero value is empty.
type Allowed struct {
	own, loopback bool
	targets       []target
}

// target is a host, an address or a network, with one port or all.
type target struct {
	host   string       // in lower case; "": prefix
	prefix netip.Prefix // of addresses
	port   uint16       // 0: all
}

// ParseAllowed parses a list of
//
//   - own: ports on which processes of the session listen, at any address of this host
//   - loopback: every port at a loopback address
//   - HOST:PORT, ADDRESS:PORT, NETWORK/BITS:PORT: that port there; * is every port. IPv6 addresses
//     and networks are in brackets.
func ParseAllowed(list []string) (Allowed, error) {
	var a Allowed
	for _, text := range list {
		switch text {
		case "own":
			a.own = true
		case "loopback":
			a.loopback = true
		default:
			t, err := parseTarget(text)
			if err != nil {
				return Allowed{}, fmt.Errorf("%q is none of own, loopback, HOST:PORT, HOST:* and CIDR:PORT: %w", text, err)
			}
			a.targets = append(a.targets, t)
		}
	}
	return a, nil
}

func parseTarget(text string) (t target, err error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return t, err
	}
	if port != "*" {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return t, fmt.Errorf("there is no port %q", port)
		}
		t.port = uint16(number)
	}
	if strings.Contains(host, "/") {
		t.prefix, err = netip.ParsePrefix(host)
		t.prefix = t.prefix.Masked()
		return t, err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.Unmap().WithZone("")
		t.prefix = netip.PrefixFrom(addr, addr.BitLen())
		return t, nil
	}
	if host == "" || strings.Contains(host, "*") {
		return t, fmt.Errorf("it names no host")
	}
	t.host = lowerHost(host)
	return t, nil
}

func lowerHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// permits reports whether a resolved address of a host is in the set, processes of the session not
// considered.
func (a Allowed) permits(host string, to netip.AddrPort) bool {
	if a.loopback && to.Addr().IsLoopback() {
		return true
	}
	for _, t := range a.targets {
		if (t.port == 0 || t.port == to.Port()) && (t.host != "" && t.host == lowerHost(host) || t.host == "" && t.prefix.Contains(to.Addr())) {
			return true
		}
	}
	return false
}
