package inproc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/internal/inproc"
)

// typed is the stream as a generated client returns it.
func typed(cs grpc.ClientStream) grpc.BidiStreamingClient[text, text] {
	return &grpc.GenericClientStream[text, text]{ClientStream: cs}
}

func TestReceiveEach_ReceivesAllInOrder(t *testing.T) {
	for _, c := range carriers {
		want := make([]string, 100)
		conn := c.connect(t, &stub{stream: func(ss grpc.ServerStream) error {
			for i := range want {
				want[i] = string(rune('a' + i%26))
				if err := ss.SendMsg(txt(want[i])); err != nil {
					return err
				}
			}
			return nil
		}}, chain{})
		var got []string
		err := inproc.ReceiveEach(typed(open(t, guarded(t), conn, bidiMethod)), func(m *text) error {
			got = append(got, m.GetValue())
			return nil
		})
		if err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%s: %v after %d messages, %q", c.name, err, len(got), got)
		}
	}
}

// A handler that sends to a receiver that waits calls it.
func TestReceiveEach_RunsInHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send, handled := make(chan struct{}), false
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			<-send
			if err := ss.SendMsg(txt("")); err != nil || !handled {
				t.Errorf("after SendMsg, %v, it was handled: %v", err, handled)
			}
			return status.Error(codes.DataLoss, "the end")
		}})
		cs := open(t, t.Context(), ch, bidiMethod)
		done := make(chan error)
		go func() {
			done <- inproc.ReceiveEach(typed(cs), func(*text) error {
				handled = true
				return nil
			})
		}()
		synctest.Wait()
		close(send)
		if err := <-done; status.Code(err) != codes.DataLoss {
			t.Error(err)
		}
	})
}

func TestReceiveEach_HandleFails_EndsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, refusal := make(chan error, 1), errors.New("no")
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			for {
				if err := ss.SendMsg(txt("")); err != nil {
					sent <- err
					return err
				}
			}
		}})
		cs := open(t, t.Context(), ch, bidiMethod)
		n := 0
		err := inproc.ReceiveEach(typed(cs), func(*text) error {
			if n++; n == 50 {
				return refusal
			}
			return nil
		})
		if err != refusal || n != 50 {
			t.Errorf("%v after %d messages", err, n)
		}
		if err := <-sent; status.Code(err) != codes.Canceled {
			t.Errorf("the handler gets %v", err)
		}
	})
}

// Nothing is handled any more when ReceiveEach returns.
func TestReceiveEach_Canceled_WaitsForHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := make(chan struct{})
		ch := serve(t, &stub{stream: func(ss grpc.ServerStream) error {
			<-start
			return ss.SendMsg(txt(""))
		}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cs := open(t, ctx, ch, bidiMethod)
		release, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- inproc.ReceiveEach(typed(cs), func(*text) error {
				<-release
				return nil
			})
		}()
		synctest.Wait()
		close(start)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("it returned while a message is handled")
		}
		close(release)
		if err := <-done; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
}
