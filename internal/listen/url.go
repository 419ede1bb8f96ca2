package listen

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Scheme is the kind of a listener.
type Scheme string

// Schemes.
const (
	SchemeTCP   Scheme = "tcp"   // every protocol over loopback TCP
	SchemeTLS   Scheme = "tls"   // every protocol over TLS
	SchemeUnix  Scheme = "unix"  // every protocol over a unix socket
	SchemeGRPC  Scheme = "grpc"  // gRPC over loopback TCP
	SchemeGRPCS Scheme = "grpcs" // gRPC over TLS
	SchemeWS    Scheme = "ws"    // JSON-RPC over websockets
	SchemeWSS   Scheme = "wss"   // JSON-RPC over websockets with TLS
	SchemeStdio Scheme = "stdio" // JSON-RPC over standard input and output
	SchemeOff   Scheme = "off"   // no listener
)

// URL is the address of a listener. It is comparable. [Parse] returns valid ones.
type URL struct {
	Scheme Scheme         // determines which field below applies
	Addr   netip.AddrPort // of TCP listeners; port 0 lets the kernel choose
	Path   string         // of SchemeUnix: absolute and clean
}

// String returns the URL in the form that Parse reads.
func (u URL) String() string {
	switch u.Scheme {
	case SchemeTCP, SchemeTLS, SchemeGRPC, SchemeGRPCS, SchemeWS, SchemeWSS:
		return string(u.Scheme) + "://" + u.Addr.String()
	case SchemeUnix:
		return "unix://" + u.Path
	default:
		return string(u.Scheme)
	}
}

// maxPath is the maximum path in sockaddr_un, without the terminating zero.
const maxPath = 107

const (
	fixExample = "write for example tcp://127.0.0.1:7420, tls://0.0.0.0:7420, unix:///run/execwire/execwire.sock, " +
		"for one protocol grpc://127.0.0.1:7420, grpcs://0.0.0.0:7420, ws://127.0.0.1:7420 or wss://0.0.0.0:7420, or stdio or off"
	fixLoopback = "only loopback may listen without TLS: listen on %s://ADDRESS:%d, or " +
		"on %s://127.0.0.1:%[2]d or a unix socket and reach it through an SSH tunnel, ssh -L %[2]d:127.0.0.1:%[2]d HOST"
	defaultPort = 7420
)

// Parse parses tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH, grpc://HOST:PORT,
// grpcs://HOST:PORT, ws://HOST:PORT, wss://HOST:PORT, stdio (or stdio://) or off. HOST
// is an address, for tcp and grpc a loopback one, or localhost, which always means
// 127.0.0.1. The error is an *[Error] of kind malformed, not loopback or too long.
func Parse(raw string) (URL, error) {
	name, rest, found := strings.Cut(raw, "://")
	switch scheme := Scheme(name); scheme {
	case SchemeStdio, SchemeOff:
		if rest != "" || found && scheme == SchemeOff {
			return URL{}, malformed(raw, fmt.Sprintf("%s takes no address", scheme))
		}
		return URL{Scheme: scheme}, nil
	case SchemeTCP, SchemeTLS, SchemeUnix, SchemeGRPC, SchemeGRPCS, SchemeWS, SchemeWSS:
		switch {
		case !found:
			return URL{}, malformed(raw, fmt.Sprintf("%q needs ://", scheme))
		case scheme == SchemeUnix:
			return parseUnix(raw, rest)
		}
		return parseAddress(scheme, raw, rest)
	}
	if !found || name == "" {
		return URL{}, malformed(raw, "there is no scheme")
	}
	return URL{}, malformed(raw, fmt.Sprintf("scheme %q is unknown", name))
}

func malformed(raw, problem string) *Error {
	return &Error{Kind: KindMalformed, URL: raw, Problem: problem, Fix: fixExample}
}

// loopbackOnly reports whether the listener may only be on loopback, whatever the
// options.
func (u URL) loopbackOnly() bool { return u.Scheme == SchemeTCP || u.Scheme == SchemeGRPC }

// parseAddress parses a URL whose host may be any address, unless the scheme is for
// loopback only: [Listen] checks whether that is secure.
func parseAddress(scheme Scheme, raw, rest string) (URL, error) {
	host, addr, err := parseHostPort(raw, rest)
	u := URL{Scheme: scheme, Addr: addr}
	switch {
	case err != nil:
		return URL{}, err
	case u.loopbackOnly() && !addr.Addr().IsLoopback():
		return URL{}, notLoopback(raw, u, host)
	case !addr.Addr().IsValid():
		return URL{}, malformed(raw, fmt.Sprintf("host %q is a name: an address of this machine is needed, 0.0.0.0 or [::] for all of them", host))
	}
	return u, nil
}

// parseHostPort returns the host as given and its address, which is zero if the
// host is a name.
func parseHostPort(raw, rest string) (host string, addr netip.AddrPort, err error) {
	if i := strings.IndexAny(rest, "/?#@"); i >= 0 {
		return "", netip.AddrPort{}, malformed(raw, fmt.Sprintf("there must be nothing but HOST:PORT, found %q", rest[i]))
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || strings.HasSuffix(rest, "]") {
		return "", netip.AddrPort{}, malformed(raw, "there is no port")
	}
	port, err := strconv.ParseUint(rest[i+1:], 10, 16)
	if err != nil {
		return "", netip.AddrPort{}, malformed(raw, fmt.Sprintf("port %q is not a number from 0 to 65535", rest[i+1:]))
	}
	ip, problem := parseHost(rest[:i])
	if problem != "" {
		return "", netip.AddrPort{}, malformed(raw, problem)
	}
	return rest[:i], netip.AddrPortFrom(ip, uint16(port)), nil
}

// parseHost returns the address of host, or the zero Addr if it is a name, or
// what is wrong with it.
func parseHost(host string) (addr netip.Addr, problem string) {
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		inner, bracketed = strings.CutSuffix(inner, "]")
	}
	switch addr, err := netip.ParseAddr(inner); {
	case host == "":
		return netip.Addr{}, "there is no host"
	case strings.EqualFold(host, "localhost"):
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), ""
	case err == nil && addr.Is6() != bracketed:
		return netip.Addr{}, fmt.Sprintf("host %q needs brackets if it is IPv6, and only then", host)
	case err == nil && addr.Zone() != "":
		return netip.Addr{}, fmt.Sprintf("host %q must not name a zone", host)
	case err == nil:
		return addr.Unmap(), ""
	case strings.ContainsAny(host, "[]:% "):
		return netip.Addr{}, fmt.Sprintf("host %q is not an address", host)
	}
	return netip.Addr{}, ""
}

func notLoopback(raw string, u URL, host string) *Error {
	port := cmp.Or(u.Addr.Port(), defaultPort)
	secure := SchemeTLS
	if u.Scheme == SchemeGRPC {
		secure = SchemeGRPCS
	}
	return &Error{
		Kind: KindNotLoopback, URL: raw,
		Problem: fmt.Sprintf("host %s is not a loopback address, and anyone who can connect could run commands", host),
		Fix:     fmt.Sprintf(fixLoopback, secure, port, u.Scheme),
	}
}

func parseUnix(raw, path string) (URL, error) {
	switch {
	case path == "":
		return URL{}, malformed(raw, "there is no path")
	case !filepath.IsAbs(path):
		return URL{}, malformed(raw, fmt.Sprintf("path %q is not absolute", path))
	case strings.ContainsRune(path, 0):
		return URL{}, malformed(raw, "the path contains a zero byte")
	case strings.HasSuffix(path, "/"), strings.HasSuffix(path, "/."), strings.HasSuffix(path, "/.."):
		return URL{}, malformed(raw, "the path names a directory")
	}
	path = filepath.Clean(path)
	if len(path) > maxPath {
		return URL{}, &Error{
			Kind: KindTooLong, URL: raw,
			Problem: fmt.Sprintf("the path has %d bytes, and a socket's address holds %d", len(path), maxPath),
			Fix:     "choose a shorter path, for example in /run",
		}
	}
	return URL{Scheme: SchemeUnix, Path: path}, nil
}
