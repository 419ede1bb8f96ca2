// Package destination decides to which addresses the server connects for its callers.
package destination

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// forbidden lists the addresses that are never connected to.
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

// embeddings lists the IPv6 prefixes whose addresses contain an IPv4 address, and
// where its bytes are.
var embeddings = []struct {
	prefix netip.Prefix
	bytes  [4]int
	xor    byte
}{
	{prefix: netip.MustParsePrefix("::/96"), bytes: [4]int{12, 13, 14, 15}},                // compatible
	{prefix: netip.MustParsePrefix("::ffff:0:0:0/96"), bytes: [4]int{12, 13, 14, 15}},      // translated
	{prefix: netip.MustParsePrefix("64:ff9b::/96"), bytes: [4]int{12, 13, 14, 15}},         // NAT64
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), bytes: [4]int{12, 13, 14, 15}},       // local-use NAT64
	{prefix: netip.MustParsePrefix("64:ff9b:1::/48"), bytes: [4]int{6, 7, 9, 10}},          // local-use NAT64 with a /48 prefix
	{prefix: netip.MustParsePrefix("2002::/16"), bytes: [4]int{2, 3, 4, 5}},                // 6to4
	{prefix: netip.MustParsePrefix("2001::/32"), bytes: [4]int{12, 13, 14, 15}, xor: 0xff}, // Teredo client
	{prefix: netip.MustParsePrefix("2001::/32"), bytes: [4]int{4, 5, 6, 7}},                // Teredo server
}

// addressesOf returns the addresses that a may reach: itself, and those embedded
// in it.
func addressesOf(a netip.Addr) []netip.Addr {
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

// Rules decide which addresses may be connected to. All methods may be called
// concurrently, and none blocks. The zero value has the general rules and no own ports.
type Rules struct {
	mu       sync.Mutex
	ownPorts map[uint16]struct{} // guarded by mu; ports that this server listens on
}

// Refused means that an address must not be connected to.
type Refused struct {
	// Address is the address.
	Address netip.Addr
	// Reason says why, as "it is link-local".
	Reason string
}

func (e *Refused) Error() string { return e.Address.String() + " is refused: " + e.Reason }

// ownListener is the reason for listeners of this server.
const ownListener = "it is a listener of this server, which requests must not reach over loopback"

// RefuseLocal refuses a port of this host, by any of its addresses, because this server
// listens there.
func (r *Rules) RefuseLocal(port uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ownPorts == nil {
		r.ownPorts = make(map[uint16]struct{})
	}
	r.ownPorts[port] = struct{}{}
}

// IsOwnPort reports whether this server listens on a port.
func (r *Rules) IsOwnPort(port uint16) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, own := r.ownPorts[port]
	return own
}

// Check returns a [*Refused] if an address must not be connected to. Call it for each
// resolved address right before connecting.
func (r *Rules) Check(to netip.AddrPort) error {
	for _, a := range addressesOf(to.Addr()) {
		for _, f := range forbidden {
			if f.prefix.Contains(a) {
				return &Refused{Address: to.Addr(), Reason: f.why}
			}
		}
		if r.IsOwnPort(to.Port()) && IsLocal(a) {
			return &Refused{Address: to.Addr(), Reason: ownListener}
		}
	}
	return nil
}

// CheckConnected returns a [*Refused] for a connection to an own port at an address that
// turns out to be of this host only once connected: both ends then have the same address.
func (r *Rules) CheckConnected(conn net.Conn) error {
	local, ok := addrOf(conn.LocalAddr())
	remote, known := addrOf(conn.RemoteAddr())
	if ok && known && local.Addr() == remote.Addr() && r.IsOwnPort(remote.Port()) {
		return &Refused{Address: remote.Addr(), Reason: ownListener}
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

// IsLocal reports whether an address belongs to this host. If the host's
// addresses are unknown it returns true.
func IsLocal(a netip.Addr) bool {
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
