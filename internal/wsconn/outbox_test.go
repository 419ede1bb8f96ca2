package wsconn

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// stalledWriter stalls its first write until it is released.
type stalledWriter struct {
	stalled  chan struct{} // closed by the first write
	released chan struct{}
	written  bytes.Buffer
}

func (w *stalledWriter) Write(b []byte) (int, error) {
	select {
	case <-w.stalled:
	default:
		close(w.stalled)
		<-w.released
	}
	return w.written.Write(b)
}

// A peer that sends pings and does not read fills the buffer with pongs. The close frame
// needs less space than a pong, but nothing may follow it.
func TestOutbox_CloseAfterPendingPong(t *testing.T) {
	to := &stalledWriter{stalled: make(chan struct{}), released: make(chan struct{})}
	out := newOutbox(to, false)
	payload := bytes.Repeat([]byte{'x'}, maxControlPayload)
	out.sendPong(payload)
	<-to.stalled
	for range bufferBytes/(2+maxControlPayload) + 1 {
		out.sendPong(payload)
	}
	out.sendClose(out.control(opClose, []byte{0x03, 0xe8}))
	close(to.released)
	if err := out.wait(); err != nil {
		t.Fatal(err)
	}
	pongs := 0
	peer := newFrameReader(&to.written, false, Options{}.withDefaults(), func(byte, []byte) { pongs++ })
	_, err := peer.next()
	if closed, ok := errors.AsType[*ClosedError](err); !ok || closed.Code != CodeNormal {
		t.Errorf("the end is %v", err)
	}
	if rest, err := io.ReadAll(peer.src); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes follow the close frame, after %d pongs: %.20q, %v", len(rest), pongs, rest, err)
	}
}
