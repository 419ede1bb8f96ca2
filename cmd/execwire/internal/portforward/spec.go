// Package portforward forwards connections of this host to ports of a server.
package portforward

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Spec is one forward: [LOCAL:]REMOTE, or LOCAL:HOST:REMOTE.
type Spec struct {
	// Local is the port to listen on; 0 takes a free one.
	Local uint16
	// Host is the host to connect to, in the server's network; empty is its loopback.
	Host string
	// Remote is the port to connect to.
	Remote uint16
}

// ParseSpec parses an argument. An IPv6 host is in brackets.
func ParseSpec(text string) (s Spec, err error) {
	head, remote := "", text
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		head, remote = text[:i], text[i+1:]
	}
	if s.Remote, err = parsePort(remote); err == nil && s.Remote == 0 {
		err = errors.New("there is no port 0")
	}
	local, host, hasHost := strings.Cut(head, ":")
	switch {
	case err != nil:
	case remote == text:
		s.Local = s.Remote
	case local != "": // empty: a free one
		s.Local, err = parsePort(local)
	}
	if err == nil && hasHost {
		s.Host, err = parseHost(host)
	}
	if err != nil {
		return Spec{}, fmt.Errorf("%q is no forward: %w; write for example 8000, 8080:8000, :8000 or 8080:db.internal:5432", text, err)
	}
	return s, nil
}

func parsePort(text string) (uint16, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no port, which is at most 65535", text)
	}
	return uint16(port), nil
}

func parseHost(text string) (string, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if addr, err := netip.ParseAddr(inner); !ok || err != nil || !addr.Is6() {
			return "", fmt.Errorf("%q is no address", text)
		}
		return inner, nil
	}
	if text == "" || strings.Contains(text, ":") {
		return "", fmt.Errorf("%q is no host, or an IPv6 address without brackets", text)
	}
	return text, nil
}

// Target returns what is connected to, for people.
func (s Spec) Target() string {
	port := strconv.Itoa(int(s.Remote))
	if s.Host == "" {
		return port
	}
	return net.JoinHostPort(s.Host, port)
}

// ParseDynamic parses [ADDRESS:]PORT of -D. The address has to be on loopback: a client of a SOCKS
// proxy shows no credential.
func ParseDynamic(text string) (netip.AddrPort, error) {
	host, port := "127.0.0.1", text
	if strings.Contains(text, ":") {
		var err error
		if host, port, err = net.SplitHostPort(text); err != nil {
			return netip.AddrPort{}, fmt.Errorf("%q is not [ADDRESS:]PORT", text)
		}
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	number, portErr := parsePort(port)
	switch {
	case err != nil || portErr != nil:
		return netip.AddrPort{}, fmt.Errorf("%q is not [ADDRESS:]PORT", text)
	case !addr.IsLoopback():
		return netip.AddrPort{}, fmt.Errorf("%s is not on loopback: a SOCKS proxy would let other hosts in without a credential", addr)
	}
	return netip.AddrPortFrom(addr, number), nil
}
