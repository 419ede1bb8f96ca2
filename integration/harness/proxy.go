package harness

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP or unix proxy between a client and a server that cuts and stalls
// connections.
type Proxy struct {
	network, upstream string
	Listener          net.Listener
	running           sync.WaitGroup

	mu     sync.Mutex
	open   *sync.Cond              // signalled when stalled changes
	links  map[*proxyConn]struct{} // guarded by mu
	cuts   int                     // guarded by mu; connections that were cut
	stall  bool                    // guarded by mu; nothing is forwarded
	budget func() int64            // guarded by mu; see CutAfter
	closed bool                    // guarded by mu
}

// proxyConn is one connection through the proxy.
type proxyConn struct {
	client, server net.Conn
	left           int64 // guarded by proxy.mu; bytes until it is cut
	broken         bool  // guarded by proxy.mu; counted as cut
}

// NewProxy starts a proxy to the server at the address.
func NewProxy(t testing.TB, network, upstream string) *Proxy {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(ShortDir(t), "p")
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{network: network, upstream: upstream, Listener: listener, links: map[*proxyConn]struct{}{}}
	p.open = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// URL returns the URL of the proxy.
func (p *Proxy) URL() string {
	if p.network == "unix" {
		return "unix://" + p.Listener.Addr().String()
	}
	return "grpc://" + p.Listener.Addr().String()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.Listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.upstream)
		if err != nil {
			_ = conn.Close()
			continue
		}
		p.connect(&proxyConn{client: conn, server: server})
	}
}

func (p *Proxy) connect(l *proxyConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.cut()
		return
	}
	l.left = -1
	if p.budget != nil {
		l.left = p.budget()
	}
	p.links[l] = struct{}{}
	p.running.Go(func() { p.pass(l, l.server, l.client) })
	p.running.Go(func() { p.pass(l, l.client, l.server) })
}

// pass copies one direction until the connection is cut.
func (p *Proxy) pass(l *proxyConn, to, from net.Conn) {
	defer p.drop(l)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			allowed := p.admit(l, n)
			if _, err := to.Write(buf[:allowed]); err != nil || allowed < n {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// admit waits while the proxy stalls and returns how many of n bytes may be forwarded
// before the connection is cut.
func (p *Proxy) admit(l *proxyConn, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stall && !p.closed {
		if _, there := p.links[l]; !there {
			return 0
		}
		p.open.Wait()
	}
	if l.left < 0 {
		return n
	}
	allowed := min(int64(n), l.left)
	l.left -= allowed
	if allowed < int64(n) {
		p.count(l)
	}
	return int(allowed)
}

// count counts a cut, once though both directions notice it. mu is held.
func (p *Proxy) count(l *proxyConn) {
	if !l.broken {
		l.broken = true
		p.cuts++
	}
}

func (p *Proxy) drop(l *proxyConn) {
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	l.cut()
}

// cut closes the connection and drops the data in flight, as a network does.
func (l *proxyConn) cut() {
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// Cut cuts all connections and returns their number. Clients may reconnect.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.links)
	for l := range p.links {
		p.count(l)
		l.cut()
		delete(p.links, l)
	}
	p.open.Broadcast()
	return n
}

// CutAfter cuts every further connection after budget() bytes in both directions
// together, mostly inside a frame.
func (p *Proxy) CutAfter(budget func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = budget
}

// SetStalled stops forwarding, or resumes it.
func (p *Proxy) SetStalled(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = stalled
	p.open.Broadcast()
}

// CutCount returns how many connections were cut.
func (p *Proxy) CutCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Cutting cuts all connections periodically until the returned function is called,
// which returns their number.
func (p *Proxy) Cutting(interval time.Duration) (stop func() int) { return cutting(interval, p) }

// mostCuts is how often connections are cut periodically: on a busy machine, a connection that is
// cut for as long as it is used may never be resumed.
const mostCuts = 60

// cutting cuts the connections of proxies in turn, periodically, until the returned
// function is called, which returns their number.
func cutting(interval time.Duration, wires ...*Proxy) (stop func() int) {
	count := func() (cuts int) {
		for _, wire := range wires {
			cuts += wire.CutCount()
		}
		return cuts
	}
	ended, over := make(chan struct{}), make(chan struct{})
	before := count()
	go func() {
		defer close(over)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for next := range mostCuts {
			select {
			case <-ended:
				return
			case <-ticker.C:
				wires[next%len(wires)].Cut()
			}
		}
	}()
	return func() int {
		close(ended)
		<-over
		return count() - before
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.Listener.Close()
	p.Cut()
	p.running.Wait()
}
