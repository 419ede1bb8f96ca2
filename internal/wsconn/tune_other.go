//go:build !linux

package wsconn

import (
	"net"
	"time"
)

// tuneSystem does nothing: servers, which need its options, run on Linux.
func tuneSystem(*net.TCPConn, time.Duration) {}
