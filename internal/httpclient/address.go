package httpclient

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// forbidden is what is never connected to, whoever asks.
var forbidden = []struct {
	prefix netip.Prefix
	why    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "it stands for this host"},
	{netip.MustParsePrefix("::/128"), "it stands for this host"},
	{netip.MustParsePrefix("169.254.0.0/16"), "it is link-local, where clouds keep their credentials"},
	{netip.MustParsePrefix("fe80::/10"), "it is link-local"},
	{netip.MustParsePrefix("224.0.0.0/4"), "it is a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "it is a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "it is the broadcast address"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "it is a metadata service"},      // Amazon
	{netip.MustParsePrefix("fd20:ce::254/128"), "it is a metadata service"},   // Google
	{netip.MustParsePrefix("100.100.100.200/32"), "it is a metadata service"}, // Alibaba
	{netip.MustParsePrefix("168.63.129.16/32"), "it is a metadata service"},   // Azure
	{netip.MustParsePrefix("192.0.0.192/32"), "it is a metadata service"},     // Oracle
}

// embeddings are the prefixes of IPv6 whose addresses stand for one of IPv4, or
// two, and where its bytes are.
var embeddings = []struct {
	prefix netip.Prefix
	bytes  [4]int
	xor    byte
}{
	{prefix: netip.MustParsePrefix("::/96"), bytes: [4]int{12, 13, 14, 15}},                // compatible
	{prefix: netip.MustParsePrefix("::ffff:0:0:0/96"), bytes: [4]int{12, 13, 14, 15}},      // translated
	{prefix: netip.MustParsePrefix("64:ff9b::/96"), bytes: [4]int{12, 13, 14, 15}},         // NAT64
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), bytes: [4]int{12, 13, 14, 15}},       // NAT64 of one's own
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), bytes: [4]int{6, 7, 9, 10}},          // the same, whole
	{prefix: netip.MustParsePrefix("2002::/16"), bytes: [4]int{2, 3, 4, 5}},                // 6to4
	{prefix: netip.MustParsePrefix("2001::/32"), bytes: [4]int{12, 13, 14, 15}, xor: 0xff}, // Teredo: the client
	{prefix: netip.MustParsePrefix("2001::/32"), bytes: [4]int{4, 5, 6, 7}},                // and its server
}

// meanings are the addresses that one may lead to: itself, and those that are
// embedded in it.
func meanings(a netip.Addr) []netip.Addr {
	a = a.WithZone("").Unmap()
	all := []netip.Addr{a}
	if a.Is4() || a.IsLoopback() || a.IsUnspecified() {
		return all
	}
	from := a.As16()
	for _, e := range embeddings {
		if e.prefix.Contains(a) {
			var four [4]byte
			for i, at := range e.bytes {
				four[i] = from[at] ^ e.xor
			}
			all = append(all, netip.AddrFrom4(four))
		}
	}
	return all
}

// addressRules say what may be connected to. The zero value has the rules that
// hold for everybody, and no listeners.
type addressRules struct {
	mu  sync.Mutex
	own map[uint16]struct{} // guarded by mu; ports that this server listens on
}

// errOwnListener is why a listener of this server is refused.
var errOwnListener = errors.New("this server listens there, and a request from here would come from loopback")

// listenOn notes a port of this server.
func (r *addressRules) listenOn(port uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own == nil {
		r.own = make(map[uint16]struct{})
	}
	r.own[port] = struct{}{}
}

func (r *addressRules) isOwnPort(port uint16) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, own := r.own[port]
	return own
}

// check returns an [*Error] if an address must not be connected to.
func (r *addressRules) check(to netip.AddrPort) error {
	for _, a := range meanings(to.Addr()) {
		for _, f := range forbidden {
			if f.prefix.Contains(a) {
				return &Error{Kind: AddressRefused, Address: to.Addr(), Err: errors.New(f.why)}
			}
		}
		if r.isOwnPort(to.Port()) && isLocal(a) {
			return &Error{Kind: AddressRefused, Address: to.Addr(), Err: errOwnListener}
		}
	}
	return nil
}

// checkConnected is for addresses that turn out to be of this host only when they
// were connected to: there, the host talks to itself.
func (r *addressRules) checkConnected(conn net.Conn) error {
	local, ok := addrOf(conn.LocalAddr())
	remote, known := addrOf(conn.RemoteAddr())
	if ok && known && local.Addr() == remote.Addr() && r.isOwnPort(remote.Port()) {
		return &Error{Kind: AddressRefused, Address: remote.Addr(), Err: errOwnListener}
	}
	return nil
}

func addrOf(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	addrPort := tcp.AddrPort()
	return netip.AddrPortFrom(addrPort.Addr().Unmap(), addrPort.Port()), true
}

// isLocal reports whether an address is one of this host. When the host does not
// tell which it has, every one may be.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	interfaces, err := net.InterfaceAddrs()
	return err != nil || slices.ContainsFunc(interfaces, func(of net.Addr) bool {
		network, ok := of.(*net.IPNet)
		if !ok {
			return false
		}
		own, ok := netip.AddrFromSlice(network.IP)
		return ok && own.Unmap() == a
	})
}
