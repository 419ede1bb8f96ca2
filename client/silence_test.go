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

// silentServer plays scripts, and is last heard of when hush is called.
type silentServer struct{ hushedAt atomic.Pointer[time.Time] }

func (s *silentServer) hush() { s.hushedAt.Store(new(time.Now())) }

func (s *silentServer) heardAt() time.Time {
	if at := s.hushedAt.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// A server of which nothing is heard counts as lost seconds later, though its connection
// exists, and the grace counts from when it was heard of last.
func TestRun_OfASilentServer_IsLostSinceItWasHeardOf(t *testing.T) {
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
			// As a relay, which ends the connection when the executor is not back.
			time.Sleep(20 * time.Second)
			return status.Error(codes.Unavailable, "the executor has left")
		})
		c.life.heardAt = silent.heardAt
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

// A server that is heard of again has its process resumed, and no byte is lost.
func TestRun_OfAServerThatWasSilent_Resumes(t *testing.T) {
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
			silent.hushedAt.Store(nil)
			return sends(nil, started(0), events(stdout(2, 1, "b"), exited(3, 0), closed(4, 2)))(stream)
		})
		c.life.heardAt = silent.heardAt
		resumed := 0
		exit, err := c.Run(t.Context(), RunOptions{Process: direct("x"), OnResumed: func() { resumed++ }})
		if err != nil || exit.StdoutBytes != 2 || exit.Resumed != 1 || resumed != 1 {
			t.Errorf("%+v, %v, %d", exit, err, resumed)
		}
	})
}

// A client that comes through a relay knows when its executor was heard of.
func TestDial_ThroughARelay_KnowsWhenTheExecutorWasHeardOf(t *testing.T) {
	executor, err := relay.NewEndpoint(relay.Config{Role: relay.Executor})
	if err != nil {
		t.Fatal(err)
	}
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
			serving.Go(func() { pass(t, relay.NewConn(stream), streams) })
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
	if c.life.heardAt == nil {
		t.Fatal("the client does not know")
	}
	if heard := c.life.heardAt(); heard.Before(begin) || heard.After(time.Now()) {
		t.Errorf("heard of at %v, dialed at %v", heard, begin)
	}
}

// pass passes bytes between a and a connection to b until one of them ends.
func pass(t *testing.T, a net.Conn, b *bufconn.Listener) {
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
