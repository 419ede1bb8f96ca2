package wsconn_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
)

// open serves one connection and returns both ends.
func open(t *testing.T, o wsconn.Options) (client *rawConn, server *wsconn.Conn) {
	t.Helper()
	conns, done := make(chan *wsconn.Conn), make(chan struct{})
	url := listen(t, o, func(c *wsconn.Conn) {
		conns <- c
		<-done
	})
	t.Cleanup(func() { close(done) })
	client = raw(t, url)
	return client, <-conns
}

func TestSend_Text(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	for _, size := range []int{0, 125, 126, 65535, 65536, 1 << 20} {
		message := strings.Repeat("x", size)
		sent := make(chan error, 1)
		go func() { sent <- server.Send([]byte(message)) }()
		c.expect(t, final|text, message)
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

// TrySend takes messages until the peer would have to be awaited. None is lost or
// overtaken, and Send follows.
func TestTrySend_DoesNotWait(t *testing.T) {
	c, server := open(t, wsconn.Options{Binary: true})
	if server.TrySend(make([]byte, 1<<20)) {
		t.Error("it takes more than its buffer")
	}
	message := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 10_000+i) }
	taken := 0
	for server.TrySend(message(taken)) {
		taken++
	}
	sent := make(chan error, 1)
	go func() { sent <- server.Send([]byte("last")) }()
	for i := range taken {
		c.expect(t, final|binaryData, string(message(i)))
	}
	c.expect(t, final|binaryData, "last")
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if !server.TrySend([]byte("more")) {
		t.Error("it takes nothing once there is space")
	}
	c.expect(t, final|binaryData, "more")
	_ = server.Close(wsconn.CodeNormal, "")
	if server.TrySend([]byte("late")) {
		t.Error("a closed connection takes a message")
	}
}

// whole reads one message and returns the length of its longest frame.
func (c *rawConn) whole(t *testing.T) (message string, longest int) {
	t.Helper()
	var b strings.Builder
	for want := byte(text); ; want = continuation {
		first, payload, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if first&^final != want {
			t.Fatalf("frame %#x within a message, want %#x", first, want)
		}
		b.WriteString(payload)
		longest = max(longest, len(payload))
		if first&final != 0 {
			return b.String(), longest
		}
	}
}

func TestSend_HugeMessage_IsFragmented(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	message := strings.Repeat("0123456789abcdef", 5<<16) + "."
	sent := make(chan error, 1)
	go func() { sent <- server.Send([]byte(message)) }()
	got, longest := c.whole(t)
	if got != message || longest > 4<<20 {
		t.Errorf("%d bytes of %d, in frames of %d", len(got), len(message), longest)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestBegin_Messages(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	for _, pieces := range [][]int{{}, {0}, {1}, {1, 2, 3}, {64 << 10}, {64<<10 + 1}, {1 << 20}, {100, 64 << 10, 100}, {64 << 10, 64 << 10}, {100, 1 << 20, 100}, {9 << 20}} {
		var want strings.Builder
		sent := make(chan error, 1)
		for i, size := range pieces {
			want.WriteString(strings.Repeat(string(rune('a'+i)), size))
		}
		go func() {
			w, err := server.Begin()
			if err != nil {
				sent <- err
				return
			}
			for i, size := range pieces {
				if n, err := w.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); n != size || err != nil {
					sent <- fmt.Errorf("wrote %d of %d: %w", n, size, err)
					return
				}
			}
			err = errors.Join(w.Close(), w.Close())
			if _, late := w.Write([]byte("x")); late == nil {
				err = errors.Join(err, errors.New("a message that has ended was written to"))
			}
			sent <- err
		}()
		got, longest := c.whole(t)
		most := wsconn.FragmentBytes
		for _, size := range pieces {
			most = max(most, min(size, 4<<20))
		}
		if got != want.String() || longest > most {
			t.Errorf("%v: %d bytes, want %d, in frames of %d", pieces, len(got), want.Len(), longest)
		}
		// A large write is not split, except for the part that fills the buffer.
		if want.Len() >= 1<<20 && longest < most-wsconn.FragmentBytes {
			t.Errorf("%v left in frames of %d at most", pieces, longest)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

// gate is a connection whose writes block and are counted.
type gate struct {
	net.Conn
	entered chan int // receives the length of each write
	open    chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	g.entered <- len(p)
	<-g.open
	return g.Conn.Write(p)
}

// gated puts a gate before a hijacked connection.
type gated struct {
	http.ResponseWriter
	gate *gate
}

func (g gated) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(g.ResponseWriter).Hijack()
	g.gate.Conn = conn
	return g.gate, buffered, err
}

// Messages sent during a write are combined into one write.
func TestSend_SmallMessages_AreCombined(t *testing.T) {
	const small, most = 1000, 3 // messages; writes
	writes := make(chan []int, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := &gate{entered: make(chan int, small), open: make(chan struct{})}
		c, err := wsconn.Accept(gated{w, g}, r, wsconn.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		first := make(chan error, 1)
		go func() { first <- c.Send([]byte("first")) }()
		lengths := []int{<-g.entered}
		for range small {
			if err := c.Send([]byte("small")); err != nil {
				t.Error(err)
			}
		}
		close(g.open)
		if err := errors.Join(<-first, c.Close(wsconn.CodeNormal, "")); err != nil {
			t.Error(err)
		}
		close(g.entered)
		for n := range g.entered {
			lengths = append(lengths, n)
		}
		writes <- lengths
	}))
	defer s.Close()
	c := raw(t, "ws://"+s.Listener.Addr().String())
	c.expect(t, final|text, "first")
	for range small {
		c.expect(t, final|text, "small")
	}
	c.expect(t, final|closing, closePayload(1000, ""))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if lengths := <-writes; len(lengths) > most {
		t.Errorf("%d messages were sent in %d writes: %d", small+1, len(lengths), lengths)
	}
}

// blockedSender is a connection whose peer does not read and whose sender is blocked.
func blockedSender(t *testing.T, o wsconn.Options) (client *rawConn, server *wsconn.Conn, sent <-chan int) {
	t.Helper()
	client, server = open(t, o)
	if err := wsconn.Innermost(server).(*net.TCPConn).SetWriteBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	progress, total := make(chan struct{}, 1), make(chan int, 1)
	go func() {
		message := bytes.Repeat([]byte{'x'}, 32<<10)
		for n := 0; ; n++ {
			if err := server.Send(message); err != nil {
				total <- n
				return
			}
			select {
			case progress <- struct{}{}:
			default:
			}
		}
	}()
	for {
		select {
		case <-progress:
		case <-time.After(100 * time.Millisecond):
			if wsconn.WindowClosed(server) {
				return client, server, total
			}
		}
	}
}

// A peer that pings and does not read is not dropped: in the end it receives
// everything, and the pong to its last ping.
func TestSend_SlowPeer_LosesNothing(t *testing.T) {
	c, server, _ := blockedSender(t, wsconn.Options{})
	received := make(chan error, 1)
	got := make(chan string, 2)
	go func() {
		for {
			message, err := server.Receive()
			if err != nil {
				received <- err
				return
			}
			got <- string(message)
		}
	}()
	const pings = 1000
	for i := range pings {
		c.send(t, frame(final|ping, fmt.Sprint("ping ", i)))
	}
	c.send(t, frame(final|text, "still here"))
	if message := <-got; message != "still here" {
		t.Errorf("received %q", message)
	}
	last := fmt.Sprint("ping ", pings-1)
	pongs := 0
	for {
		first, payload, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if first == final|pong {
			pongs++
			if payload == last {
				break
			}
		}
	}
	if pongs > pings {
		t.Errorf("%d pings were answered %d times", pings, pongs)
	}
	c.send(t, normalClose)
	if err := <-received; err != io.EOF {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A blocked sender is released when the connection ends.
func TestSend_PeerEnds_Unblocks(t *testing.T) {
	for name, end := range map[string]func(*rawConn) error{
		"closed":             func(c *rawConn) error { _, err := c.Write(normalClose); return err },
		"closed otherwise":   func(c *rawConn) error { _, err := c.Write(frame(final|closing, closePayload(4000, ""))); return err },
		"ended its side":     func(c *rawConn) error { return c.CloseWrite() },
		"broke the protocol": func(c *rawConn) error { _, err := c.Write(frame(final|0xb, "")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			c, server, sent := blockedSender(t, wsconn.Options{CloseTimeout: 50 * time.Millisecond})
			if err := end(c); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Receive(); err == nil {
				t.Error("received something")
			}
			<-sent
		})
	}
}

func TestSend_PeerGone_Fails(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	if err := errors.Join(c.SetLinger(0), c.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Receive(); err == nil {
		t.Fatal("received something")
	}
	deadline := time.Now().Add(patience)
	for server.Send([]byte("x")) == nil {
		if time.Now().After(deadline) {
			t.Fatal("sending to a peer that is gone never fails")
		}
	}
	if err := server.Close(wsconn.CodeNormal, ""); err == nil {
		t.Error("Close reports that everything was sent")
	}
}
