package wsconn_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/wsconn"
)

// A peer that has closed still receives the responses to its requests, and then
// the reply to its close.
func TestClose_ByPeer_IsAnsweredLast(t *testing.T) {
	client, server := open(t, wsconn.Options{})
	client.send(t, frame(final|text, "question"), normalClose)
	if message, err := server.Receive(); err != nil || string(message) != "question" {
		t.Fatalf("received %q, %v", message, err)
	}
	if _, err := server.Receive(); err != io.EOF {
		t.Fatalf("a normal close is %v, want the end of the file", err)
	}
	if err := server.Send([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(wsconn.CodeInternalError, "not that of the peer"); err != nil {
		t.Error(err)
	}
	client.expect(t, final|text, "answer")
	client.expect(t, final|closing, closePayload(1000, ""))
}

// A peer that violated the protocol receives the close frame although it sends
// more data, and may continue until it sees it.
func TestClose_ProtocolViolation_SendsCode(t *testing.T) {
	for name, broken := range map[string][]byte{
		"reserved opcode": frame(final|0x3, "with a payload"),
		"reserved bit":    frame(final|0x40|text, "with a payload"),
		"unmasked":        {final | text, 2, 'n', 'o'},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := open(t, wsconn.Options{})
			client.send(t, broken)
			if _, err := server.Receive(); err == nil || errors.Is(err, io.EOF) {
				t.Fatalf("received with %v", err)
			}
			closed := make(chan error, 1)
			go func() { closed <- server.Close(wsconn.CodePolicy, "") }()
			first, payload, err := client.next()
			if first != final|closing || !strings.HasPrefix(payload, closePayload(1002, "")) || err != nil {
				t.Fatalf("got frame %#x %q, %v", first, payload, err)
			}
			if _, _, err := client.next(); err != io.EOF {
				t.Errorf("after the close: %v", err)
			}
			client.send(t, frame(final|text, "did that work?"), normalClose)
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClose_PeerNotReading_TimesOut(t *testing.T) {
	leakcheck.Check(t)
	_, server, sent := blockedSender(t, wsconn.Options{CloseTimeout: 50 * time.Millisecond})
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := server.Close(wsconn.CodeGoingAway, "enough"); err == nil {
				t.Error("everything was sent to a peer that does not read")
			}
		})
	}
	closers.Wait()
	<-sent
	if _, err := server.Receive(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// The peer neither answers the close nor ends its side.
func TestClose_PeerNotAnswering_TimesOut(t *testing.T) {
	c, server := open(t, wsconn.Options{CloseTimeout: 2 * time.Second})
	receiving := make(chan error, 1)
	go func() {
		_, err := server.Receive()
		receiving <- err
	}()
	if err := errors.Join(server.Send([]byte("last words")), server.Close(wsconn.CodeNormal, "")); err != nil {
		t.Error(err)
	}
	c.expect(t, final|text, "last words")
	c.expect(t, final|closing, closePayload(1000, ""))
	if err := <-receiving; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// coupledConn reads only when it can write, as TLS does during a key update.
type coupledConn struct {
	net.Conn
	reading   chan struct{} // closed by the first Read
	writable  chan struct{} // closed by a write deadline
	once, end sync.Once
}

func (e *coupledConn) Read([]byte) (int, error) {
	e.once.Do(func() { close(e.reading) })
	<-e.writable
	return 0, os.ErrDeadlineExceeded
}

func (e *coupledConn) Write([]byte) (int, error) {
	<-e.writable
	return 0, os.ErrDeadlineExceeded
}

func (e *coupledConn) SetWriteDeadline(time.Time) error {
	e.end.Do(func() { close(e.writable) })
	return nil
}

// coupledHijacker returns coupledConn connections when hijacked.
type coupledHijacker struct {
	http.ResponseWriter
	conn *coupledConn
}

func (u coupledHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(u.ResponseWriter).Hijack()
	u.conn.Conn = conn
	return u.conn, buffered, err
}

func TestClose_ReaderWaitingForWriter_Returns(t *testing.T) {
	closed := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := &coupledConn{reading: make(chan struct{}), writable: make(chan struct{})}
		c, err := wsconn.Accept(coupledHijacker{w, conn}, r, wsconn.Options{CloseTimeout: 50 * time.Millisecond})
		if err != nil {
			closed <- err
			return
		}
		end := receiving(c)
		<-conn.reading
		sent := make(chan error, 1)
		go func() { sent <- c.Send([]byte("stuck")) }()
		if c.Close(wsconn.CodeGoingAway, "") == nil {
			err = errors.New("everything was sent to a peer that does not read")
		}
		<-end
		<-sent
		closed <- err
	}))
	defer s.Close()
	raw(t, "ws://"+s.Listener.Addr().String())
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Close does not return")
	}
}

// A peer that is sending when the connection is closed receives what it was sent.
func TestClose_WhilePeerSends_DeliversSent(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	sending := make(chan error, 1)
	go func() {
		for range 64 {
			if _, err := c.Write(huge(final|text, strings.Repeat("x", 64<<10))); err != nil {
				sending <- err
				return
			}
		}
		_, err := c.Write(frame(final|closing, closePayload(1000, "")))
		sending <- err
	}()
	if _, err := server.Receive(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Send([]byte("last words")), server.Close(wsconn.CodePolicy, "stop")); err != nil {
		t.Error(err)
	}
	if err := <-sending; err != nil {
		t.Error(err)
	}
	c.expect(t, final|text, "last words")
	c.expect(t, final|closing, closePayload(wsconn.CodePolicy, "stop"))
}

func TestClose_CodesAndReasons(t *testing.T) {
	for _, c := range []struct {
		code     int
		reason   string
		wantCode uint16
		want     string
	}{
		{code: 1000, wantCode: 1000},
		{code: 4999, reason: "mine", wantCode: 4999, want: "mine"},
		{code: 1005, reason: "x", wantCode: 1011, want: "x"},
		{code: 7, wantCode: 1011},
		{code: 1001, reason: strings.Repeat("x", 200), wantCode: 1001, want: strings.Repeat("x", 123)},
		{code: 1001, reason: strings.Repeat("ä", 100), wantCode: 1001, want: strings.Repeat("ä", 61)},
	} {
		client, server := open(t, wsconn.Options{})
		closed := make(chan error, 1)
		go func() { closed <- server.Close(c.code, c.reason) }()
		client.expect(t, final|closing, closePayload(c.wantCode, c.want))
		if err := errors.Join(client.Close(), <-closed); err != nil {
			t.Error(err)
		}
	}
	client, server := open(t, wsconn.Options{})
	closed := make(chan error, 1)
	go func() { closed <- server.Close(0, "not sent") }()
	if _, _, err := client.next(); err != io.EOF {
		t.Errorf("without a code the peer sees %v", err)
	}
	if err := errors.Join(client.Close(), <-closed); err != nil {
		t.Error(err)
	}
}
