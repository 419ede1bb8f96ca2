package wsconn

import (
	"net/netip"
	"strings"
)

// IsLoopback reports whether the host of a URL is literally loopback: localhost
// or a loopback address. Other names are not resolved, since the result may
// change.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.Unmap().IsLoopback()
}
