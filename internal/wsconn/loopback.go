package wsconn

import (
	"net/netip"
	"strings"
)

// IsLoopback reports whether the host of a URL is this one as it is written: a
// name that merely resolves to loopback may resolve to something else tomorrow.
func IsLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.Unmap().IsLoopback()
}
