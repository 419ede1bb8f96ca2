package wsconn_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/buffers"
	"github.com/execwire/execwire/internal/wsconn"
)

// patience bounds waiting for something that must happen.
const patience = 2 * time.Minute

// listen serves websockets with serve, and returns the URL. The test waits for
// all of them to end.
func listen(t testing.TB, o wsconn.Options, serve func(*wsconn.Conn)) string {
	t.Helper()
	ended := make(chan struct{}, 1000)
	begun := make(chan struct{}, 1000)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, o)
		if err != nil {
			return
		}
		begun <- struct{}{}
		defer func() { ended <- struct{}{} }()
		defer c.Close(wsconn.CodeNormal, "")
		serve(c)
	})
	s := httptest.NewUnstartedServer(handler)
	s.Listener = wsconn.Tune(s.Listener, 0, 0)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		for range len(begun) {
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("a connection's handler has not returned")
				return
			}
		}
	})
	return "ws" + strings.TrimPrefix(s.URL, "http")
}

func dial(t testing.TB, url string, o wsconn.DialOptions) *wsconn.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("dialing took too long"))
	defer cancel()
	c, err := wsconn.Dial(ctx, url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(0, "") })
	return c
}

// echo sends back what it receives.
func echo(c *wsconn.Conn) {
	for {
		message, err := c.Receive()
		if err != nil {
			return
		}
		if err := c.Send(message); err != nil {
			return
		}
	}
}

func TestMessages_EverySize(t *testing.T) {
	url := listen(t, wsconn.Options{}, echo)
	c := dial(t, url, wsconn.DialOptions{})
	for _, size := range []int{0, 1, 125, 126, 4096, 65535, 65536, 70_000, 1 << 20, 1<<20 + 1, 5 << 20, 9 << 20} {
		sent := strings.Repeat("0123456789abcde", size/15+1)[:size]
		failed := make(chan error, 1)
		go func() { failed <- c.Send([]byte(sent)) }()
		got, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != sent {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

func TestReceive_NormalClose_IsEOF(t *testing.T) {
	ends := make(chan error, 1)
	url := listen(t, wsconn.Options{}, func(c *wsconn.Conn) {
		_, err := c.Receive()
		ends <- err
	})
	c := dial(t, url, wsconn.DialOptions{})
	if err := c.Close(wsconn.CodeNormal, "done"); err != nil {
		t.Error(err)
	}
	if err := <-ends; err != io.EOF {
		t.Errorf("the end was %v, want io.EOF", err)
	}
	if _, err := c.Receive(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("receiving on what was closed: %v", err)
	}
	if err := c.Send([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sending on what was closed: %v", err)
	}
}

func TestProve(t *testing.T) {
	url := listen(t, wsconn.Options{}, echo)
	c := dial(t, url, wsconn.DialOptions{})
	go func() {
		for {
			if _, err := c.Receive(); err != nil {
				return
			}
		}
	}()
	for range 100 {
		if err := c.Send([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := c.Prove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A message of ReceiveOwned keeps its content while further messages are received,
// until it is recycled.
func TestReceiveOwned_IsNotReused(t *testing.T) {
	const messages = 40
	content := func(i int) []byte {
		return bytes.Repeat([]byte{byte(i + 1)}, []int{0, 10, 3000, 3500, 4096, 50_000, 64 << 10, 131_200, 200_000, 250_000}[i%10])
	}
	received := make(chan [][]byte, 1)
	url := listen(t, wsconn.Options{Binary: true}, func(c *wsconn.Conn) {
		var owned [][]byte
		for i := range messages {
			b, err := c.ReceiveOwned()
			if err != nil || b == nil {
				t.Errorf("message %d: %v", i, err)
				break
			}
			if cap(b) > len(b)+len(b)/3+64 {
				t.Errorf("a message of %d bytes takes %d", len(b), cap(b))
			}
			owned = append(owned, b)
		}
		received <- owned
		for _, b := range owned {
			buffers.Put(b)
		}
		_ = c.Close(wsconn.CodeNormal, "")
	})
	c, err := wsconn.Dial(t.Context(), url, wsconn.DialOptions{Options: wsconn.Options{Binary: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(wsconn.CodeNormal, "") }()
	for i := range messages {
		if err := c.Send(content(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range <-received {
		if !bytes.Equal(b, content(i)) {
			t.Errorf("message %d of %d bytes was changed", i, len(b))
		}
	}
}
