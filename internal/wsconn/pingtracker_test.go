package wsconn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/wsconn"
)

// receiving receives on c until it fails, and returns the error.
func receiving(c *wsconn.Conn) <-chan error {
	end := make(chan error, 1)
	go func() {
		for {
			if _, err := c.Receive(); err != nil {
				end <- err
				return
			}
		}
	}()
	return end
}

// proving calls Prove and returns its result.
func proving(ctx context.Context, c *wsconn.Conn) <-chan error {
	proved := make(chan error, 1)
	go func() { proved <- c.Prove(ctx) }()
	return proved
}

// question reads a ping and returns its payload.
func (c *rawConn) question(t *testing.T) string {
	t.Helper()
	first, payload, err := c.next()
	if err != nil || first != final|ping {
		t.Fatalf("got frame %#x %.40q, %v, want a ping", first, payload, err)
	}
	return payload
}

func TestProve_PingFollowsSentMessages(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	end := receiving(server)
	for i := range 10 {
		message := fmt.Sprint("message ", i)
		if err := server.Send([]byte(message)); err != nil {
			t.Fatal(err)
		}
		proved := proving(t.Context(), server)
		c.expect(t, final|text, message)
		payload := c.question(t)
		for _, wrong := range []string{"", "x", "\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x00\x00\x00\x00\x00\x00\x00"} {
			c.send(t, frame(final|pong, wrong))
		}
		c.send(t, frame(final|ping, "were those read?"))
		c.expect(t, final|pong, "were those read?")
		select {
		case err := <-proved:
			t.Fatalf("proved without an answer: %v", err)
		default:
		}
		c.send(t, frame(final|pong, payload))
		if err := <-proved; err != nil {
			t.Fatal(err)
		}
	}
	c.send(t, normalClose)
	if err := <-end; err != io.EOF {
		t.Error(err)
	}
}

// Pings are sent between the frames of a message, without waiting for its end.
func TestProve_DuringBegunMessage(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	receiving(server)
	w, err := server.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{wsconn.FragmentBytes, 1} {
		if _, err := w.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	proved := proving(t.Context(), server)
	c.expect(t, text, string(make([]byte, wsconn.FragmentBytes)))
	c.send(t, frame(final|pong, c.question(t)))
	if err := <-proved; err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	c.expect(t, final|continuation, "\x00")
}

// A peer may answer only the last of several pings.
func TestProve_PongAnswersEarlierPings(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	receiving(server)
	var all []<-chan error
	var last string
	for range wsconn.MaxPings {
		all = append(all, proving(t.Context(), server))
		last = c.question(t)
	}
	c.send(t, frame(final|pong, last))
	for _, proved := range all {
		if err := <-proved; err != nil {
			t.Error(err)
		}
	}
}

func TestProve_UnansweredPings_AreBounded(t *testing.T) {
	c, server := open(t, wsconn.Options{})
	receiving(server)
	var all []<-chan error
	var first string
	for i := range wsconn.MaxPings {
		all = append(all, proving(t.Context(), server))
		if payload := c.question(t); i == 0 {
			first = payload
		}
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	oneMore := proving(ctx, server)
	if err := server.Send([]byte("no ping before this")); err != nil {
		t.Fatal(err)
	}
	c.expect(t, final|text, "no ping before this")
	cancel(enough)
	if err := <-oneMore; !errors.Is(err, enough) {
		t.Errorf("one ping more: %v", err)
	}
	next := proving(t.Context(), server)
	c.send(t, frame(final|pong, first))
	if err := <-all[0]; err != nil {
		t.Error(err)
	}
	c.send(t, frame(final|pong, c.question(t)))
	for _, proved := range append(all[1:], next) {
		if err := <-proved; err != nil {
			t.Error(err)
		}
	}
}

func TestProve_ConnectionEnds_Fails(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		end  func(*rawConn, *wsconn.Conn, context.CancelCauseFunc) error
		want error
	}{
		"context": {func(_ *rawConn, _ *wsconn.Conn, cancel context.CancelCauseFunc) error { cancel(enough); return nil }, enough},
		"closed":  {func(_ *rawConn, c *wsconn.Conn, _ context.CancelCauseFunc) error { return c.Close(0, "") }, net.ErrClosed},
		"peer closes": {func(c *rawConn, _ *wsconn.Conn, _ context.CancelCauseFunc) error {
			_, err := c.Write(normalClose)
			return err
		}, net.ErrClosed},
		"peer is gone": {func(c *rawConn, _ *wsconn.Conn, _ context.CancelCauseFunc) error { return c.Close() }, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := open(t, wsconn.Options{CloseTimeout: 50 * time.Millisecond})
			receiving(server)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			proved := proving(ctx, server)
			client.question(t)
			if err := c.end(client, server, cancel); err != nil {
				t.Fatal(err)
			}
			if err := <-proved; !errors.Is(err, c.want) {
				t.Errorf("proving ends with %v, want %v", err, c.want)
			}
			if name != "context" {
				if err := server.Prove(t.Context()); err == nil {
					t.Error("proved on a connection that is over")
				}
			}
		})
	}
}

// Repeatedly canceled calls do not accumulate while the peer does not read, and a
// later one succeeds.
func TestProve_CanceledCalls_DoNotAccumulate(t *testing.T) {
	c, server, _ := blockedSender(t, wsconn.Options{})
	receiving(server)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	for range 4 * wsconn.Buffered / len(frame(final|ping, "")) {
		if err := server.Prove(ctx); !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	proved := proving(t.Context(), server)
	for asked := 0; ; {
		select {
		case err := <-proved:
			if most := wsconn.Buffered / len(frame(final|ping, "")); err != nil || asked > most {
				t.Errorf("proved with %v, after %d pings", err, asked)
			}
			return
		default:
		}
		first, payload, err := c.next()
		if err != nil {
			t.Fatalf("no ping that is answered proves anything, after %d: %v", asked, err)
		}
		if first == final|ping {
			asked++
			c.send(t, frame(final|pong, payload))
		}
	}
}
