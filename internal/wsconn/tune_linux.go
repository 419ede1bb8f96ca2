package wsconn

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tcpRTOMaxMS is TCP_RTO_MAX_MS of linux/tcp.h, which x/sys lacks.
const tcpRTOMaxMS = 44

// unsentBytes bounds the data in the kernel that is not sent yet. Unbounded, some
// MiB of output would count as written to a client that does not read, and delay
// responses.
const unsentBytes = 512 << 10

// tuneSystem sets the options that only Linux has. probes is the time between probes.
func tuneSystem(tcp *net.TCPConn, probes time.Duration) {
	descriptor, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = descriptor.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
		// Before Linux 6.15 the option does not exist, and probes of a closed
		// window are up to two minutes apart.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMaxMS, int(probes.Milliseconds()))
	})
}
