package integration

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// proxy is the wire between a client and a server, for tests to damage.
type proxy struct {
	network, upstream string
	listener          net.Listener
	running           sync.WaitGroup

	mu     sync.Mutex
	open   *sync.Cond         // signalled when stalled changes
	links  map[*link]struct{} // guarded by mu
	cuts   int                // guarded by mu; connections that were cut
	stall  bool               // guarded by mu; nothing passes
	budget func() int64       // guarded by mu; see cutAfter
	closed bool               // guarded by mu
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	left           int64 // guarded by proxy.mu; bytes until it is cut
	broken         bool  // guarded by proxy.mu; counted as cut
}

// newProxy opens a wire to the server at the address.
func newProxy(t testing.TB, network, upstream string) *proxy {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(shortDir(t), "p")
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{network: network, upstream: upstream, listener: listener, links: map[*link]struct{}{}}
	p.open = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// url is where clients reach the server through the proxy.
func (p *proxy) url() string {
	if p.network == "unix" {
		return "unix://" + p.listener.Addr().String()
	}
	return "grpc://" + p.listener.Addr().String()
}

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.upstream)
		if err != nil {
			_ = conn.Close()
			continue
		}
		p.connect(&link{client: conn, server: server})
	}
}

func (p *proxy) connect(l *link) {
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

// pass copies one direction until the link is cut.
func (p *proxy) pass(l *link, to, from net.Conn) {
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

// admit waits while the proxy stalls and returns how much of n bytes may pass
// before the link is cut.
func (p *proxy) admit(l *link, n int) int {
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
func (p *proxy) count(l *link) {
	if !l.broken {
		l.broken = true
		p.cuts++
	}
}

func (p *proxy) drop(l *link) {
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	l.cut()
}

// cut breaks the connection with what is on its way, as a network does.
func (l *link) cut() {
	for _, conn := range []net.Conn{l.client, l.server} {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// cut breaks every connection there is and returns how many those were.
// Clients may connect again.
func (p *proxy) cut() int {
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

// cutAfter makes every connection from now on break after as many bytes, in
// both directions together, as budget says; mostly in the middle of a frame.
func (p *proxy) cutAfter(budget func() int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = budget
}

// setStalled makes nothing pass, or everything again.
func (p *proxy) setStalled(stalled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = stalled
	p.open.Broadcast()
}

// cutCount is how many connections were broken.
func (p *proxy) cutCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// cutting cuts every connection every so often, until the returned function is
// called, which returns how many those were.
func (p *proxy) cutting(interval time.Duration) (stop func() int) { return cutting(interval, p) }

// cutting cuts what is on wires, one after the other, every so often, until the
// returned function is called, which returns how many connections that were.
func cutting(interval time.Duration, wires ...*proxy) (stop func() int) {
	count := func() (cuts int) {
		for _, wire := range wires {
			cuts += wire.cutCount()
		}
		return cuts
	}
	ended, over := make(chan struct{}), make(chan struct{})
	before := count()
	go func() {
		defer close(over)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for next := 0; ; next++ {
			select {
			case <-ended:
				return
			case <-ticker.C:
				wires[next%len(wires)].cut()
			}
		}
	}()
	return func() int {
		close(ended)
		<-over
		return count() - before
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.cut()
	p.running.Wait()
}

// TestTheProxyDamages shows that the wire does what other tests rely on.
func TestTheProxyDamages(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(shortDir(t), "s")
			}
			server, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			defer serving.Wait()
			defer func() { _ = server.Close() }()
			serving.Go(func() {
				for conn, err := server.Accept(); err == nil; conn, err = server.Accept() {
					// Not from connection to connection: that would splice, by
					// pipes that the runtime keeps.
					_, _ = io.Copy(struct{ io.Writer }{conn}, conn)
					_ = conn.Close()
				}
			})
			p := newProxy(t, network, server.Addr().String())
			p.cutAfter(func() int64 { return 13 }) // 5 up, 5 down, 3 of the next 5 up
			conn, err := net.Dial(network, p.listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			got := make([]byte, 16)
			if _, err := conn.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if n, err := io.ReadFull(conn, got[:5]); n != 5 || err != nil {
				t.Fatalf("read %d bytes, %v; want all that was within the budget", n, err)
			}
			if _, err := conn.Write([]byte("world")); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(got); n > 3 || err == nil && n == 0 {
				t.Fatalf("read %d bytes, %v; want the connection cut", n, err)
			}
			eventually(t, "the cut is counted", func() bool { return p.cutCount() == 1 })
			if _, err := conn.Read(got); err == nil || errors.Is(err, net.ErrClosed) {
				t.Errorf("a connection that was cut reads %v", err)
			}
		})
	}
}
