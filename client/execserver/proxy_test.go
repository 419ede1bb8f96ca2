package execserver

import (
	"io"
	"net"
	"sync"
	"testing"
)

// cutter passes connections on and cuts each after so many bytes of what the server
// says; 0 is never.
type cutter struct {
	t        testing.TB
	listener net.Listener
	to       string
	tasks    sync.WaitGroup

	mu    sync.Mutex
	after int64             // guarded by mu
	conns map[net.Conn]bool // guarded by mu
	cuts  int               // guarded by mu
}

func newCutter(t testing.TB, to string) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, listener: listener, to: to, conns: make(map[net.Conn]bool)}
	c.tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.tasks.Go(func() { c.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.cutAll()
		c.tasks.Wait()
	})
	return c
}

func (c *cutter) address() string { return c.listener.Addr().String() }

// cutEach has every connection cut after so many bytes from now on.
func (c *cutter) cutEach(after int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
}

func (c *cutter) limit() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.after
}

func (c *cutter) cutCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

func (c *cutter) cutAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *cutter) pass(client net.Conn) {
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		_ = client.Close()
		return
	}
	c.mu.Lock()
	c.conns[client], c.conns[server] = true, true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.conns, client)
		delete(c.conns, server)
		c.mu.Unlock()
	}()
	var up sync.WaitGroup
	up.Go(func() {
		// Without the writer's ReadFrom, which splices by pipes that the runtime keeps
		// open until two collections later: descriptors that look leaked.
		_, _ = io.Copy(struct{ io.Writer }{server}, client)
		_ = server.(*net.TCPConn).CloseWrite()
	})
	passed, buffer := int64(0), make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		if _, writeErr := client.Write(buffer[:n]); err != nil || writeErr != nil {
			break
		}
		passed += int64(n)
		if limit := c.limit(); limit > 0 && passed > limit {
			c.mu.Lock()
			c.cuts++
			c.mu.Unlock()
			break
		}
	}
	_ = client.(*net.TCPConn).SetLinger(0) // a reset: nothing is said
	_ = client.Close()
	_ = server.Close()
	up.Wait()
}
