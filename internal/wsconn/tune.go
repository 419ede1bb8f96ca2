package wsconn

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Defaults of [Tuning].
const (
	DefaultKeepAliveIdle     = 30 * time.Second
	DefaultKeepAliveInterval = 10 * time.Second
	DefaultKeepAliveCount    = 3
)

// Tuning is how the kernel finds out that the peer of an idle connection is gone.
// The zero value has the defaults.
type Tuning struct {
	KeepAliveIdle     time.Duration // how long nothing may come before it asks; 0 is the default
	KeepAliveInterval time.Duration // between two questions; 0 is the default
	KeepAliveCount    int           // how many may be unanswered; 0 is the default
}

// Tune returns a listener whose TCP connections send at once and find peers that
// are gone. Connections of other kinds are left alone. It belongs below TLS.
func Tune(inner net.Listener, t Tuning) net.Listener {
	return &tunedListener{Listener: inner, config: t.config()}
}

func (t Tuning) config() net.KeepAliveConfig {
	return net.KeepAliveConfig{
		Enable:   true,
		Idle:     orDefault(t.KeepAliveIdle, DefaultKeepAliveIdle),
		Interval: orDefault(t.KeepAliveInterval, DefaultKeepAliveInterval),
		Count:    orDefault(t.KeepAliveCount, DefaultKeepAliveCount),
	}
}

type tunedListener struct {
	net.Listener
	config net.KeepAliveConfig
}

// Accept implements net.Listener.
func (l *tunedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := innermost(conn).(*net.TCPConn); ok {
		tune(tcp, l.config)
	}
	return conn, nil
}

// tcpRTOMaxMS is TCP_RTO_MAX_MS of linux/tcp.h, which x/sys does not know.
const tcpRTOMaxMS = 44

// unsentBytes is how much may wait in the kernel that the network has not taken
// yet. Unbounded, some MiB of output of a client that does not read would count
// as written, and an answer would wait behind them.
const unsentBytes = 512 << 10

// tune sets what there is to set. A failure leaves a connection that works and
// takes longer to find out that its peer is gone.
func tune(tcp *net.TCPConn, config net.KeepAliveConfig) {
	_ = tcp.SetNoDelay(true)
	_ = tcp.SetKeepAliveConfig(config)
	descriptor, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = descriptor.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
		// Kernels before 6.15 do not have it and ask a peer with a closed window
		// every two minutes only, in the end.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpRTOMaxMS, int(config.Interval.Milliseconds()))
	})
}

// innermost returns the connection at the bottom of wrappers that tell what they
// wrap, as TLS does.
func innermost(conn net.Conn) net.Conn {
	for {
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = wrapper.NetConn()
	}
}
