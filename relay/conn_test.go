package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/net/nettest"
)

// conns returns the two ends of a stream as connections.
func conns(t testing.TB, c Config) (harness, executor net.Conn, stop func()) {
	h, x := endpoint(t, Config{Role: Harness, SegmentBytes: c.SegmentBytes}), endpoint(t, c)
	cut := connect(t, h, x)
	s := openReliable(t, h)
	p := acceptPeer(t, s, x)
	return NewConn(s), NewConn(p), func() {
		_ = h.Close(ReasonGoingAway)
		_ = x.Close(ReasonGoingAway)
		cut()
	}
}

// TestConn runs the conformance test for net.Conn.
func TestConn(t *testing.T) {
	for name, turned := range map[string]bool{"harness": false, "executor": true} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b, stop := conns(t, Config{})
				if turned {
					a, b = b, a
				}
				return a, b, stop, nil
			})
		})
	}
}

// Data written before Close arrives, followed by io.EOF, while carriers are cut.
func TestConn_Close_DeliversWritten(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	cut := connect(t, h, x)
	s := openReliable(t, h)
	a, b := NewConn(s), NewConn(acceptPeer(t, s, x))
	cut()
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	if _, err := a.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Write(sent); !errors.Is(err, net.ErrClosed) {
		t.Errorf("writing to what was closed: %v", err)
	}
	connect(t, h, x)
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came, %v", len(got), len(sent), err)
	}
	expectReset(t, s, ReasonClosed, false)
}

// Flush waits for data written to a closed connection, so that closing the
// endpoint does not lose it.
func TestEndpoint_Flush_WaitsForClosedConns(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	cut := connect(t, h, x)
	s := openReliable(t, h)
	send(t, s, "x")
	p := accept(t, x)
	expect(t, p, "x")
	a, b := NewConn(s), NewConn(p)
	cut()
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	if _, err := b.Write(sent); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	enough := errors.New("enough")
	over, end := context.WithCancelCause(t.Context())
	end(enough)
	if err := x.Flush(over); !errors.Is(err, enough) {
		t.Errorf("flushing without a carrier: %v", err)
	}
	flushed := make(chan error, 1)
	go func() { flushed <- errors.Join(x.Flush(t.Context()), x.Close(ReasonGoingAway)) }()
	connect(t, h, x)
	if got, err := io.ReadAll(a); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d came, %v", len(got), len(sent), err)
	}
	if err := <-flushed; err != nil {
		t.Errorf("flushing: %v", err)
	}
	if err := x.Flush(t.Context()); err != nil {
		t.Errorf("flushing nothing: %v", err)
	}
}

// Only a reset with ReasonClosed reads as io.EOF.
func TestConn_Reset_IsNotEOF(t *testing.T) {
	a, b, stop := conns(t, Config{})
	defer stop()
	a.(*conn).stream.Reset(ReasonExecutorGone)
	_, err := b.Read(make([]byte, 1))
	if reset, is := errors.AsType[*ResetError](err); !is || reset.Reason != ReasonExecutorGone {
		t.Errorf("the end is %v", err)
	}
}

// Streams are released whichever end closes first, although the application never
// asks why they ended.
func TestConn_Close_ReleasesStream(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{})
	connect(t, h, x)
	for i := range 10 {
		near := NewConn(openReliable(t, h))
		if _, err := near.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		far := NewConn(accept(t, x))
		if i%2 == 0 {
			near, far = far, near
		}
		for _, end := range []net.Conn{near, far} {
			if err := end.Close(); err != nil {
				t.Error(err)
			}
			<-end.(*conn).stream.Done()
		}
	}
	for _, e := range []*Endpoint{h, x} {
		if left := e.table.count; left != 0 {
			t.Errorf("the %v has %d places that nobody needs", e.table.config.Role, left)
		}
	}
}

// io.EOF means that everything has arrived, so a peer that did not receive it in
// time does not get io.EOF.
func TestConn_CloseUnread_GivesNoEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, x := endpoint(t, Config{Role: Harness}), endpoint(t, Config{QueueBytes: 1})
		connect(t, h, x)
		s := openReliable(t, h)
		p := acceptPeer(t, s, x)
		a, b := NewConn(s), NewConn(p)
		sent := make([]byte, 10*DefaultSegmentBytes)
		if _, err := a.Write(sent); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		<-p.Done()
		got, err := io.ReadAll(b)
		if len(got) == len(sent) {
			t.Fatal("everything was taken, so this shows nothing")
		}
		if reset, is := errors.AsType[*ResetError](err); !is || !reset.Remote || reset.Reason != ReasonMessageCut {
			t.Errorf("after %d bytes of %d the end is %v", len(got), len(sent), err)
		}
	})
}

// Concurrent writes are not interleaved.
func TestConn_ConcurrentWrites_AreContiguous(t *testing.T) {
	h, x := endpoint(t, Config{Role: Harness, SegmentBytes: 2}), endpoint(t, Config{})
	connect(t, h, x)
	s := openReliable(t, h)
	a, b := NewConn(s), NewConn(acceptPeer(t, s, x))
	const writers, size = 4, 1000
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() { _, _ = a.Write(bytes.Repeat([]byte{byte(i)}, size)) })
	}
	for range writers {
		got := make([]byte, size)
		if _, err := io.ReadFull(b, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, bytes.Repeat(got[:1], size)) {
			t.Error("writes are mixed")
		}
	}
	writing.Wait()
}
