package wsconn

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"
)

// Defaults of Tune.
const (
	DefaultKeepAliveIdle    = 30 * time.Second
	DefaultKeepAliveTimeout = 30 * time.Second
)

// keepAliveProbes is how many probes the kernel sends within the timeout of Tune.
const keepAliveProbes = 3

// Tune returns a listener whose TCP connections use TCP_NODELAY and keep-alive, with
// which the kernel detects that the peer of an idle connection is gone: after idle it
// probes, and after about timeout without an answer, at least three seconds, it ends the
// connection. Zeros are the defaults above. Other connections are not changed. It must be
// applied below TLS.
func Tune(inner net.Listener, idle, timeout time.Duration) net.Listener {
	return &tunedListener{Listener: inner, config: net.KeepAliveConfig{
		Enable: true, Idle: cmp.Or(idle, DefaultKeepAliveIdle), Count: keepAliveProbes,
		Interval: max(cmp.Or(timeout, DefaultKeepAliveTimeout)/keepAliveProbes, time.Second),
	}}
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

// tune sets the socket options. Failures are ignored: the connection works, but a
// dead peer is detected later.
func tune(tcp *net.TCPConn, config net.KeepAliveConfig) {
	_ = tcp.SetNoDelay(true)
	_ = tcp.SetKeepAliveConfig(config)
	tuneSystem(tcp, config.Interval)
}

// innermost returns the innermost connection of wrappers with a NetConn method,
// such as TLS.
func innermost(conn net.Conn) net.Conn {
	for {
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = wrapper.NetConn()
	}
}

// hasTLS reports whether conn, or one that it wraps, is one with TLS.
func hasTLS(conn net.Conn) bool {
	for {
		if _, is := conn.(interface{ ConnectionState() tls.ConnectionState }); is {
			return true
		}
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		conn = wrapper.NetConn()
	}
}
