package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/execwire/execwire/internal/wsconn"
	"github.com/execwire/execwire/relay"
)

// silentServer plays scripts, and reports silentSince as the last time of receipt.
type silentServer struct{ silentSince atomic.Pointer[time.Time] }

func (s *silentServer) hush() { s.silentSince.Store(new(time.Now())) }

func (s *silentServer) lastReceived() time.Time {
	if at := s.silentSince.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// A server that sends nothing counts as lost after some seconds, although its
// connection exists, and the grace period counts from when data was last received.
func TestRun_SilentServer_LostSinceLastReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent silentServer
		_, c := newFake(t, func(stream serverStream) error {
			if err := stream.Send(started(0)); err != nil {
				return err
			}
			silent.hush()
			<-stream.Context().Done()
			return stream.Context().Err()
		}, func(stream serverStream) error {
			// As a relay whose executor does not return.
			time.Sleep(20 * time.Second)
			return status.Error(codes.Unavailable, "the executor has left")
		})
		c.life.lastReceived = silent.lastReceived
		begin, lostAfter := time.Now(), time.Duration(0)
		_, err := c.Run(t.Context(), RunOptions{Process: direct("x"), OnLost: func(error) { lostAfter = time.Since(begin) }})
		if lostAfter < silentAfter || lostAfter > silentAfter+2*silenceInterval {
			t.Errorf("it was lost after %v", lostAfter)
		}
		var lost *LostError
		if !errors.As(err, &lost) || lost.Lost != time.Since(begin) {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		if took := time.Since(begin); took < assumedGrace+graceMargin || took > assumedGrace+graceMargin+5*time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

// When the server sends again, the process is resumed without losing a byte.
func TestRun_SilentServerReturns_Resumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent silentServer
		_, c := newFake(t, func(stream serverStream) error {
			if err := errors.Join(stream.Send(started(0)), stream.Send(events(stdout(1, 0, "a")))); err != nil {
				return err
			}
			silent.hush()
			<-stream.Context().Done()
			return stream.Context().Err()
		}, func(stream serverStream) error {
			time.Sleep(5 * time.Second)
			silent.silentSince.Store(nil)
			return sends(nil, started(0), events(stdout(2, 1, "b"), exited(3, 0), closed(4, 2)))(stream)
		})
		c.life.lastReceived = silent.lastReceived
		resumed := 0
		exit, err := c.Run(t.Context(), RunOptions{Process: direct("x"), OnResumed: func() { resumed++ }})
		if err != nil || exit.StdoutBytes != 2 || exit.Resumed != 1 || resumed != 1 {
			t.Errorf("%+v, %v, %d", exit, err, resumed)
		}
	})
}

// Over a relay, the client knows when data from the executor last arrived.
func TestDial_Relay_LastReceived(t *testing.T) {
	executor := relay.NewEndpoint(relay.Config{Role: relay.Executor})
	rendezvous := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := wsconn.Accept(w, r, wsconn.Options{Binary: true, CloseTimeout: time.Second})
		if err != nil {
			t.Error(err)
			return
		}
		_ = executor.Run(context.Background(), conn)
	}))
	server := grpc.NewServer()
	streams := bufconn.Listen(1 << 20) // takes what Serve is given
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			stream, err := executor.Accept(context.Background())
			if err != nil {
				return
			}
			serving.Go(func() { forwardBytes(t, relay.NewConn(stream), streams) })
		}
	})
	serving.Go(func() { _ = server.Serve(streams) })
	t.Cleanup(func() {
		server.Stop()
		_ = executor.Close(relay.ReasonGoingAway)
		rendezvous.Close()
		serving.Wait()
	})
	url, err := RelayURL(rendezvous.URL, "a")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	c, err := Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if c.life.lastReceived == nil {
		t.Fatal("the client does not know")
	}
	if last := c.life.lastReceived(); last.Before(begin) || last.After(time.Now()) {
		t.Errorf("last of at %v, dialed at %v", last, begin)
	}
}

// forwardBytes forwards bytes between a and a connection to b until one of them ends.
func forwardBytes(t *testing.T, a net.Conn, b *bufconn.Listener) {
	other, err := b.Dial()
	if err != nil {
		_ = a.Close()
		return
	}
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, other}, {other, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = a.Close()
			_ = other.Close()
		})
	}
	both.Wait()
}
